//! Clarabel, an interior-point solver in Rust.

use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolver, IPSolver as _, NonnegativeConeT, SolverStatus, ZeroConeT,
};

use super::{Lp, LpError, LpSolution, LpSolver, RowKind};

/// Clarabel. Its answers lie inside the set of optima: they use many paths where several are equally good.
#[derive(Clone, Copy, Debug, Default)]
pub struct InteriorPoint;

impl LpSolver for InteriorPoint {
    fn name(&self) -> &'static str {
        "clarabel"
    }

    fn solve(&self, lp: &Lp) -> Result<LpSolution, LpError> {
        let (variables, rows) = (lp.cost.len(), lp.rows.len());
        // the solver wants rows of a kind together: equalities, upper bounds, then the signs of the variables
        let equal = lp.rows.iter().filter(|r| r.0 == RowKind::Equal).count();
        let (mut next_equal, mut next_most) = (0, equal);
        let mut place = Vec::with_capacity(rows);
        let mut right = vec![0.0; rows + variables];
        for &(kind, value) in &lp.rows {
            let next = if kind == RowKind::Equal { &mut next_equal } else { &mut next_most };
            right[*next] = value;
            place.push(*next);
            *next += 1;
        }
        let mut first = vec![0];
        let (mut row_of, mut entries) = (Vec::new(), Vec::new());
        for (j, column) in lp.columns.iter().enumerate() {
            let mut placed: Vec<(usize, f64)> = column.iter().map(|&(r, a)| (place[r], a)).collect();
            placed.sort_unstable_by_key(|p| p.0);
            placed.push((rows + j, -1.0));
            row_of.extend(placed.iter().map(|p| p.0));
            entries.extend(placed.iter().map(|p| p.1));
            first.push(row_of.len());
        }
        let matrix = CscMatrix::new(rows + variables, variables, first, row_of, entries);
        let quadratic = CscMatrix::zeros((variables, variables));
        let cones = [ZeroConeT(equal), NonnegativeConeT(rows - equal + variables)];
        let settings = DefaultSettings { verbose: false, ..DefaultSettings::default() };
        let mut solver = DefaultSolver::new(&quadratic, &lp.cost, &matrix, &right, &cones, settings)
            .map_err(|e| lp.error(self.name(), e.to_string()))?;
        solver.solve();
        let answer = &solver.solution;
        match answer.status {
            SolverStatus::Solved | SolverStatus::AlmostSolved => {
                Ok(LpSolution { x: answer.x.clone(), price: place.iter().map(|&r| answer.z[r]).collect() })
            }
            status => Err(lp.error(self.name(), format!("{status:?}"))),
        }
    }
}
