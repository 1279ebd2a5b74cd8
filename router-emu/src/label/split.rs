//! Splitting a path into segments that a stack of limited depth can steer (EBB paper 5.2.2).
//!
//! The router at a segment's start sends the packet out of its own interface and pushes one static label for each
//! further hop of the segment. A segment that does not end at the destination carries the binding SID at the bottom: the
//! router at its end, the *intermediate node*, matches it and pushes the next segment's stack.

/// One segment of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the hop at which it starts; 0 is the source, others are intermediate nodes.
    pub start: usize,
    /// Hops that it covers.
    pub hops: usize,
    /// Labels to push, outermost first; the SID, if any, last.
    pub labels: Vec<u32>,
}

/// Indices of the hops at which segments start, for a path of `links` hops and stacks of at most `depth` labels.
///
/// A segment covers `depth` links (`depth - 1` static labels and the SID); the final one up to `depth + 1`, because its
/// stack has no SID and the first hop needs no label. A depth of 0 is read as 1.
pub fn segment_starts(links: usize, depth: usize) -> impl Iterator<Item = usize> {
    let depth = depth.max(1);
    let mut next = (links > 0).then_some(0);
    std::iter::from_fn(move || {
        let start = next?;
        next = (links - start > depth + 1).then_some(start + depth);
        Some(start)
    })
}

/// Number of intermediate nodes of a path of `links` hops: the segment starts without the source.
pub fn intermediates(links: usize, depth: usize) -> usize {
    segment_starts(links, depth).count().saturating_sub(1)
}

/// Splits a path given by the static label of each hop (the label of the egress interface on that hop's router).
pub fn split(labels: &[u32], sid: u32, depth: usize) -> Vec<Segment> {
    let starts: Vec<usize> = segment_starts(labels.len(), depth).collect();
    let ends = starts.iter().skip(1).copied().chain([labels.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| {
            let mut stack = labels[start + 1..end].to_vec();
            if end < labels.len() {
                stack.push(sid);
            }
            Segment { start, hops: end - start, labels: stack }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn intermediate_nodes_of_a_stack_of_three() {
        for links in 1..=40usize {
            let want = if links <= 4 { 0 } else { (links - 4).div_ceil(3) };
            assert_eq!(intermediates(links, 3), want, "{links} links");
        }
        assert_eq!([5, 8, 11].map(|links| intermediates(links, 3)), [1, 2, 3]);
        assert_eq!(intermediates(0, 3), 0);
    }

    #[test]
    fn stacks_of_a_long_path() {
        let labels: Vec<u32> = (100..108).collect();
        let got: Vec<_> = split(&labels, 7, 3).into_iter().map(|s| (s.start, s.hops, s.labels)).collect();
        assert_eq!(got, [(0, 3, vec![101, 102, 7]), (3, 3, vec![104, 105, 7]), (6, 2, vec![107])]);
    }

    /// Walks a packet: static labels are unique, label `100 + i` is popped by router `i` and leads to router `i + 1`.
    fn walk(links: usize, depth: usize) -> Result<usize, String> {
        const SID: u32 = 600_000;
        let labels: Vec<u32> = (0..links).map(|i| 100 + u32::try_from(i).unwrap()).collect();
        let segments = split(&labels, SID, depth);
        let mut stack: Vec<u32> = vec![SID];
        let mut at = 0;
        loop {
            if stack.len() > depth {
                return Err(format!("{} labels at router {at}", stack.len()));
            }
            match stack.first().copied() {
                None => return Ok(at),
                Some(SID) => {
                    let segment =
                        segments.iter().find(|s| s.start == at).ok_or(format!("no SID route at {at}"))?;
                    stack.splice(..1, segment.labels.iter().copied());
                    at += 1;
                }
                Some(label) => {
                    if label != labels[at] {
                        return Err(format!("label {label} at router {at}"));
                    }
                    stack.remove(0);
                    at += 1;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_path_reaches_its_end(links in 1..=20usize, depth in 1..=6usize) {
            prop_assert_eq!(walk(links, depth), Ok(links));
        }
    }
}
