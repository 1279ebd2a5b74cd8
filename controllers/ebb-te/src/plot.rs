//! Plots as SVG: lines over two axes, complete in one file, readable without a legend to decipher.

use std::fmt::Write as _;

/// A plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Says what is seen.
    pub title: String,
    /// A line below it: of what, under which settings.
    pub subtitle: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Lines.
    pub series: Vec<Series>,
    /// A vertical line with words: (value, words).
    pub mark: Option<(f64, String)>,
    /// Words in the middle, for a plot whose lines say nothing.
    pub note: Option<String>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it measures, with its unit.
    pub label: String,
    /// Least value shown.
    pub min: f64,
    /// Largest value shown.
    pub max: f64,
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// CSS colour.
    pub colour: &'static str,
    /// Dashes instead of a solid line.
    pub dashed: bool,
    /// Points, ascending in x.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 490.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 796.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 372.0;
const LEGEND: f64 = 442.0;

impl Axis {
    /// Marks on the axis: 4 to 10 round values.
    pub fn ticks(&self) -> Vec<f64> {
        let span = self.max - self.min;
        if !span.is_finite() || span <= 0.0 {
            return vec![self.min];
        }
        let rough = 10f64.powf((span / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * rough).find(|s| span / s <= 8.0);
        let step = step.unwrap_or(rough * 10.0);
        let first = (self.min / step - 1e-9).ceil();
        let at = |i: u32| (first + f64::from(i)) * step;
        (0..12).map(at).take_while(|v| *v <= self.max + step * 1e-9).collect()
    }
}

impl Plot {
    /// The file's text.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        // writing to a string cannot fail
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"13\">"
        )?;
        writeln!(out, "<title>{}</title>", escaped(&self.title))?;
        writeln!(out, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>")?;
        text(
            out,
            LEFT,
            28.0,
            "start",
            "font-size=\"18\" font-weight=\"bold\" fill=\"#1b1f24\"",
            &self.title,
        )?;
        text(out, LEFT, 50.0, "start", "fill=\"#57606a\"", &self.subtitle)?;
        self.axes(out)?;
        if let Some((value, words)) = self.mark.as_ref().filter(|m| (self.x.min..=self.x.max).contains(&m.0))
        {
            let x = self.at_x(*value);
            writeln!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\" stroke=\"#8c959f\" stroke-dasharray=\"2 4\"/>"
            )?;
            let (anchor, x) = if x > RIGHT - 140.0 { ("end", x - 6.0) } else { ("start", x + 6.0) };
            text(out, x, BOTTOM - 10.0, anchor, "fill=\"#57606a\"", words)?;
        }
        for series in &self.series {
            self.line(out, series)?;
        }
        if let Some(note) = &self.note {
            let (x, y) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
            text(out, x, y, "middle", "font-size=\"16\" fill=\"#57606a\"", note)?;
        }
        self.legend(out)?;
        out.push_str("</svg>\n");
        Ok(())
    }

    fn at_x(&self, value: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * share(value, &self.x)
    }

    fn at_y(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * share(value, &self.y)
    }

    fn axes(&self, out: &mut String) -> std::fmt::Result {
        for tick in self.y.ticks() {
            let y = self.at_y(tick);
            writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\" stroke=\"#e4e8ec\"/>"
            )?;
            text(out, LEFT - 10.0, y + 4.5, "end", "fill=\"#424a53\"", &number(tick))?;
        }
        for tick in self.x.ticks() {
            let x = self.at_x(tick);
            writeln!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\" stroke=\"#eef1f4\"/>"
            )?;
            text(out, x, BOTTOM + 20.0, "middle", "fill=\"#424a53\"", &number(tick))?;
        }
        writeln!(
            out,
            "<path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"#424a53\" stroke-width=\"1.2\"/>"
        )?;
        text(out, f64::midpoint(LEFT, RIGHT), BOTTOM + 44.0, "middle", "fill=\"#1b1f24\"", &self.x.label)?;
        let y = f64::midpoint(TOP, BOTTOM);
        let turned = format!("fill=\"#1b1f24\" transform=\"rotate(-90 24 {y})\"");
        text(out, 24.0, y, "middle", &turned, &self.y.label)
    }

    /// A staircase: the share stays until the next value.
    fn line(&self, out: &mut String, series: &Series) -> std::fmt::Result {
        let mut path = String::new();
        for (i, &(x, y)) in series.points.iter().enumerate() {
            let (x, y) = (self.at_x(x), self.at_y(y));
            if i == 0 {
                write!(path, "M{x:.1} {y:.1}")?;
            } else {
                write!(path, "H{x:.1}V{y:.1}")?;
            }
        }
        if !path.is_empty() {
            write!(path, "H{RIGHT}")?;
        }
        let dashes = if series.dashed { " stroke-dasharray=\"7 5\"" } else { "" };
        writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.2\" stroke-linejoin=\"round\"{dashes}/>",
            series.colour
        )
    }

    fn legend(&self, out: &mut String) -> std::fmt::Result {
        let (mut x, mut y) = (LEFT, LEGEND);
        for series in &self.series {
            let end = x + 33.0 + width(&series.name);
            if end > RIGHT && x > LEFT {
                (x, y) = (LEFT, y + 22.0);
            }
            let dashes = if series.dashed { " stroke-dasharray=\"7 5\"" } else { "" };
            writeln!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{y}\" x2=\"{end:.1}\" y2=\"{y}\" stroke=\"{}\" stroke-width=\"2.6\"{dashes}/>",
                series.colour,
                end = x + 26.0
            )?;
            text(out, x + 33.0, y + 4.5, "start", "fill=\"#1b1f24\"", &series.name)?;
            x += 33.0 + width(&series.name) + 24.0;
        }
        Ok(())
    }
}

fn share(value: f64, axis: &Axis) -> f64 {
    let span = axis.max - axis.min;
    if span > 0.0 { ((value - axis.min) / span).clamp(0.0, 1.0) } else { 0.0 }
}

/// About how wide a text of 13 pixels is.
fn width(text: &str) -> f64 {
    text.chars()
        .map(|c| if matches!(c, 'i' | 'l' | 't' | 'f' | 'r' | ' ' | ',' | '.' | ':') { 4.2 } else { 7.4 })
        .sum()
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, style: &str, words: &str) -> std::fmt::Result {
    writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{}</text>",
        escaped(words)
    )
}

/// A tick's value without needless zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Text that XML can hold: markup escaped, control characters gone.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let ticks = |min, max| Axis { label: String::new(), min, max }.ticks();
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(
            ticks(1.0, 1.5).iter().map(|t| number(*t)).collect::<Vec<_>>(),
            ["1", "1.1", "1.2", "1.3", "1.4", "1.5"]
        );
        assert_eq!(ticks(3.0, 3.0), [3.0]);
        for max in [0.001, 0.7, 3.0, 99.0, 12_345.0] {
            let t = ticks(0.0, max);
            assert!((4..=10).contains(&t.len()), "{max}: {t:?}");
            assert!(t.iter().all(|v| *v <= max * 1.000_001));
        }
    }

    #[test]
    fn names_cannot_break_the_file() {
        let plot = Plot {
            title: "<b> & \"c\"\u{7}".into(),
            subtitle: String::new(),
            x: Axis { label: "x".into(), min: 0.0, max: 1.0 },
            y: Axis { label: "y".into(), min: 0.0, max: 1.0 },
            series: vec![],
            mark: None,
            note: None,
        };
        let svg = plot.svg();
        assert!(svg.contains("&lt;b&gt; &amp; &quot;c&quot; "));
        assert!(roxmltree::Document::parse(&svg).is_ok());
    }
}
