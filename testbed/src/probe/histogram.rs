//! Times in buckets that grow with the value: percentiles in fixed memory, off by at most 1/32.

/// Buckets per power of two, as bits.
const SUB_BITS: u32 = 5;
/// Enough buckets for any `u64`.
const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) << SUB_BITS;

/// Counts of values, nanoseconds by convention.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u32]>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), total: 0, max: 0 }
    }
}

fn bucket(value: u64) -> usize {
    let high = (value | 1).ilog2();
    let shift = high.saturating_sub(SUB_BITS);
    let index = (u64::from(shift) << SUB_BITS) + (value >> shift);
    usize::try_from(index).unwrap_or(BUCKETS - 1)
}

/// Largest value that falls into the bucket.
fn upper(index: usize) -> u64 {
    let index = index as u64;
    let shift = (index >> SUB_BITS).saturating_sub(1);
    let base = index - (shift << SUB_BITS);
    let end = (u128::from(base) + 1) << shift;
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        let count = &mut self.counts[bucket(value)];
        *count = count.saturating_add(1);
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// Number of values.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Largest value, exact; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Value that at least `percent` of a hundred values do not exceed, rounded up to its bucket's end; 0 if there
    /// is no value.
    pub fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.total * percent.min(100)).div_ceil(100).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return upper(index).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty() {
        let h = Histogram::default();
        assert_eq!((h.percentile(50), h.max(), h.total()), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn buckets_hold_their_values(value: u64) {
            let index = bucket(value);
            prop_assert!(index < BUCKETS);
            prop_assert!(upper(index) >= value);
            prop_assert!(upper(index) - value <= value / 32);
            prop_assert!(index == 0 || upper(index - 1) < value);
        }

        #[test]
        fn percentiles_are_close(mut values in prop::collection::vec(0u64..10_000_000_000, 1..200), percent in 1u64..=100) {
            let mut h = Histogram::default();
            for value in &values {
                h.record(*value);
            }
            values.sort_unstable();
            let rank = (values.len() * usize::try_from(percent).unwrap()).div_ceil(100).max(1);
            let exact = values[rank - 1];
            let got = h.percentile(percent);
            prop_assert!(got >= exact && got <= exact + exact / 32, "{} for {}", got, exact);
        }
    }
}
