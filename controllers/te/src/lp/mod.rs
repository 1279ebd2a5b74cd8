//! Linear programs, and what solves them.
//!
//! The programs here are small: minimise over variables that are not negative, under rows that are equalities or upper
//! bounds. Solvers come from outside; nothing here trusts them further than their answer can be checked.

mod interior;
#[cfg(feature = "highs")]
mod simplex;

pub use interior::InteriorPoint;
#[cfg(feature = "highs")]
pub use simplex::Simplex;

use thiserror::Error;

/// Kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// Sum equals the right-hand side.
    Equal,
    /// Sum is at most the right-hand side.
    AtMost,
}

/// Minimise `cost * x` over `x >= 0` under rows.
#[derive(Clone, Debug, Default)]
pub struct Lp {
    /// Cost per variable.
    pub cost: Vec<f64>,
    /// Per variable, its (row, coefficient) entries; each row once, rows ascending.
    pub columns: Vec<Vec<(usize, f64)>>,
    /// Kind and right-hand side per row.
    pub rows: Vec<(RowKind, f64)>,
}

/// What a solver found.
#[derive(Clone, Debug, PartialEq)]
pub struct LpSolution {
    /// Value per variable; may be negative by the solver's tolerance.
    pub x: Vec<f64>,
    /// Per row, what the optimum falls by when the right-hand side grows by one: not negative for upper bounds.
    pub price: Vec<f64>,
}

/// Why a program was not solved.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{solver} did not solve a linear program of {variables} variables and {rows} rows: {why}")]
pub struct LpError {
    /// Name of the solver.
    pub solver: &'static str,
    /// Variables of the program.
    pub variables: usize,
    /// Rows of the program.
    pub rows: usize,
    /// What the solver said.
    pub why: String,
}

/// Solves linear programs, deterministically and on one thread.
pub trait LpSolver {
    /// Name for messages.
    fn name(&self) -> &'static str;
    /// The optimum, to about six digits.
    fn solve(&self, lp: &Lp) -> Result<LpSolution, LpError>;
}

impl Lp {
    /// Adds a row and gives its number.
    pub fn row(&mut self, kind: RowKind, right: f64) -> usize {
        self.rows.push((kind, right));
        self.rows.len() - 1
    }

    /// Adds a variable and gives its number.
    pub fn variable(&mut self, cost: f64, entries: Vec<(usize, f64)>) -> usize {
        self.cost.push(cost);
        self.columns.push(entries);
        self.cost.len() - 1
    }

    /// `cost * x`.
    pub fn value(&self, x: &[f64]) -> f64 {
        self.cost.iter().zip(x).map(|(c, x)| c * x).sum()
    }

    fn error(&self, solver: &'static str, why: String) -> LpError {
        LpError { solver, variables: self.cost.len(), rows: self.rows.len(), why }
    }
}
