//! Columns of text.

/// Rows of cells, the first of them the heading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns that are aligned to the right: numbers.
    right: Vec<usize>,
}

impl Table {
    /// A table with these headings; `right` columns hold numbers.
    pub fn new(heading: &[&str], right: &[usize]) -> Self {
        Self { rows: vec![heading.iter().map(|&h| h.to_owned()).collect()], right: right.to_vec() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Lines with columns two blanks apart, without blanks at their ends.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
        let mut out = String::new();
        for row in &self.rows {
            let cell = |(c, text): (usize, &String)| {
                let width = widths[c];
                if self.right.contains(&c) { format!("{text:>width$}") } else { format!("{text:<width$}") }
            };
            let line = row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let mut t = Table::new(&["name", "n"], &[1]);
        t.row(vec!["a".into(), "10".into()]);
        t.row(vec!["élan".into(), "7".into()]);
        assert_eq!(t.render(), "name   n\na     10\nélan   7\n");
    }
}
