//! HiGHS, a simplex solver in C++, as a cross-check (feature `highs`).

use highs::{HighsModelStatus, RowProblem, Sense};

use super::{Lp, LpError, LpSolution, LpSolver, RowKind};

/// HiGHS. Its answers are corners of the set of optima: few paths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simplex;

impl LpSolver for Simplex {
    fn name(&self) -> &'static str {
        "highs"
    }

    fn solve(&self, lp: &Lp) -> Result<LpSolution, LpError> {
        let mut problem = RowProblem::default();
        let variables: Vec<_> = lp.cost.iter().map(|&c| problem.add_column(c, 0.0..)).collect();
        let mut rows = vec![Vec::new(); lp.rows.len()];
        for (column, &variable) in lp.columns.iter().zip(&variables) {
            for &(row, a) in column {
                rows[row].push((variable, a));
            }
        }
        for (entries, &(kind, right)) in rows.iter().zip(&lp.rows) {
            match kind {
                RowKind::Equal => problem.add_row(right..=right, entries),
                RowKind::AtMost => problem.add_row(..=right, entries),
            };
        }
        let mut model = problem.optimise(Sense::Minimise);
        model.set_option("threads", 1); // the count is global to the process: never another one
        let solved = model.solve();
        if solved.status() != HighsModelStatus::Optimal {
            return Err(lp.error(self.name(), format!("{:?}", solved.status())));
        }
        let solution = solved.get_solution();
        Ok(LpSolution {
            x: solution.columns().to_vec(),
            price: solution.dual_rows().iter().map(|d| -d).collect(),
        })
    }
}
