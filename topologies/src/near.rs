//! Which known name a mistyped one probably meant.

use std::collections::BTreeSet;

/// The known names nearest to `given` if they are near at all: at most three, all equally near, by name.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // Long names allow more typing errors; short ones match anything if they allow many.
    let limit = (given.chars().count() / 3).clamp(1, 4);
    let mut ranked: Vec<(usize, &str)> = known
        .into_iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|name| (distance(&given.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    ranked.sort_unstable();
    let best = ranked.first().map_or(0, |(distance, _)| *distance);
    ranked.into_iter().take_while(|(distance, _)| *distance == best).take(3).map(|(_, name)| name).collect()
}

/// `did you mean ...?` or, if nothing is near, `known: ...` with at most a dozen names.
pub fn suggestion<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: BTreeSet<&str> = known.into_iter().collect();
    let near = nearest(given, known.iter().copied());
    if !near.is_empty() {
        let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
        return format!("did you mean {}?", near.join(" or "));
    }
    let listed: Vec<&str> = known.iter().copied().take(12).collect();
    let more = known.len().saturating_sub(listed.len());
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    if listed.is_empty() {
        "there are none".to_owned()
    } else {
        format!("known: {}{tail}", listed.join(", "))
    }
}

/// Insertions, deletions, replacements and swaps of neighbours between two texts.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_typing_errors() {
        assert_eq!(distance("capactiy", "capacity"), 1);
        assert_eq!(nearest("capactiy", ["capacity", "rtt", "members"]), ["capacity"]);
        assert_eq!(nearest("x", ["capacity"]), Vec::<&str>::new());
        assert_eq!(suggestion("prm", ["prn", "atn"]), "did you mean `prn`?");
        assert_eq!(suggestion("zzzzzz", ["prn", "atn"]), "known: atn, prn");
    }
}
