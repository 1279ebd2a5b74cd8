//! Distributions.

use serde::Serialize;

/// A cumulative distribution of measured values.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Cdf {
    /// Distinct values, ascending, each with the share of measurements (0 to 1) that are at or below it.
    points: Vec<(f64, f64)>,
}

impl Cdf {
    /// The distribution of `values`; those that are not finite are left out.
    pub fn new(mut values: Vec<f64>) -> Self {
        values.retain(|v| v.is_finite());
        values.sort_by(f64::total_cmp);
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (i, &value) in values.iter().enumerate() {
            let share = count(i + 1) / count(values.len());
            match points.last_mut() {
                #[allow(clippy::float_cmp)] // equal values are one step
                Some(last) if last.0 == value => last.1 = share,
                _ => points.push((value, share)),
            }
        }
        Self { points }
    }

    /// Distinct values with the share at or below.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Share of measurements at or below `value`; 1 if there are none.
    pub fn at(&self, value: f64) -> f64 {
        let below = self.points.partition_point(|p| p.0 <= value);
        match (below, self.points.is_empty()) {
            (_, true) => 1.0,
            (0, false) => 0.0,
            (n, false) => self.points[n - 1].1,
        }
    }

    /// The least value that this share of measurements does not exceed; 0 if there are none.
    pub fn quantile(&self, share: f64) -> f64 {
        let at = self.points.partition_point(|p| p.1 < share);
        self.points.get(at).or(self.points.last()).map_or(0.0, |p| p.0)
    }
}

/// Mean; 0 if there are none.
pub(super) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / count(values.len()) }
}

#[allow(clippy::cast_precision_loss)] // numbers of measurements
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_quantiles() {
        let cdf = Cdf::new(vec![3.0, 1.0, 1.0, f64::NAN, 2.0]);
        assert_eq!(cdf.points(), [(1.0, 0.5), (2.0, 0.75), (3.0, 1.0)]);
        assert_eq!((cdf.at(0.9), cdf.at(1.0), cdf.at(2.5), cdf.at(9.0)), (0.0, 0.5, 0.75, 1.0));
        assert_eq!((cdf.quantile(0.5), cdf.quantile(0.6), cdf.quantile(1.0)), (1.0, 2.0, 3.0));
        assert_eq!((Cdf::default().at(1.0), Cdf::default().quantile(0.5)), (1.0, 0.0));
    }
}
