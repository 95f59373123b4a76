//! A plan as a picture that needs no other program: SVG, readable on light and dark paper.

use std::fmt::Write;

use super::amounts::{bytes, operations, plural};
use super::layout::{Arrow, End, Layout, MODEL, SEGMENT};
use super::plan::{SegmentKind, SharePlan};

/// Rules begin with `.plan`, so that the picture can stand inside a page.
const STYLE: &str = "\
.plan .paper{fill:#fff}\
.plan text{fill:#1f2328}\
.plan .quiet{fill:#59636e}\
.plan .name{font-weight:600}\
.plan .trunk{fill:#dafbe1;stroke:#1a7f37}\
.plan .head{fill:#f6f8fa;stroke:#818b98}\
.plan .whole{fill:#f6f8fa;stroke:#818b98;stroke-dasharray:5 4}\
.plan .model{fill:#ddf4ff;stroke:#0969da}\
.plan .arrow{fill:none;stroke:#818b98;stroke-width:1.5}\
.plan .tip{fill:#818b98}\
@media (prefers-color-scheme:dark){\
.plan .paper{fill:#0d1117}\
.plan text{fill:#e6edf3}\
.plan .quiet{fill:#9198a1}\
.plan .trunk{fill:#12351f;stroke:#3fb950}\
.plan .head,.plan .whole{fill:#161b22;stroke:#6e7681}\
.plan .model{fill:#0c2d6b;stroke:#4493f8}\
.plan .arrow{stroke:#6e7681}\
.plan .tip{fill:#6e7681}\
}";

/// Characters of a model's name that fit into its box.
const NAME_LENGTH: usize = 30;
/// Characters that fit beside an arrow's end.
const LABEL_LENGTH: usize = 18;

impl SharePlan {
    /// The plan as an SVG picture, the same for the same plan: trunks (green) on the left, then
    /// heads, then models (blue), and what crosses between them with its size. Full names are
    /// shown where the pointer rests.
    pub fn to_svg(&self) -> String {
        let layout = Layout::new(self);
        let (width, height) = (layout.width, layout.height);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plan\" role=\"img\" \
             viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n",
            escape(&self.summary())
        );
        for arrow in &layout.arrows {
            self.draw_arrow(&mut svg, arrow);
        }
        let mut trunks = 0;
        for (number, corner) in layout.segments.iter().enumerate() {
            trunks += usize::from(self.segments[number].kind == SegmentKind::Trunk);
            self.draw_segment(&mut svg, number, trunks, *corner);
        }
        for (route, (x, y)) in self.models.iter().zip(&layout.models) {
            let (name, short) = (escape(&route.name), escape(&shortened(&route.name, NAME_LENGTH)));
            let (w, h) = MODEL;
            line(&mut svg, format_args!("<g><title>{name}</title>"));
            let corner = h / 2;
            let shape = format_args!(
                "<rect class=\"model\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"{corner}\"/>"
            );
            line(&mut svg, shape);
            let (x, y) = (x + w / 2, y + h / 2 + 4);
            let text =
                format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{short}</text></g>");
            line(&mut svg, text);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// What the picture shows, in a sentence.
    fn summary(&self) -> String {
        let models = plural(self.models.len(), "model");
        match self.trunks().count() {
            0 => format!("{models} without a trunk in common"),
            count => format!("{models} on {}", plural(count, "trunk")),
        }
    }

    fn draw_segment(&self, svg: &mut String, number: usize, trunk: usize, (x, y): (i64, i64)) {
        let segment = &self.segments[number];
        let users = plural(segment.users.len(), "model");
        let (class, name) = match segment.kind {
            SegmentKind::Trunk => ("trunk", format!("trunk {trunk} of {users}")),
            SegmentKind::Head => ("head", "head".to_owned()),
            SegmentKind::Whole => ("whole", "whole model".to_owned()),
        };
        let (w, h) = SEGMENT;
        let shape = format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"6\"/>"
        );
        line(svg, shape);
        let rows = [
            ("name", name),
            ("quiet", plural(segment.model.nodes().len(), "node")),
            ("quiet", operations(segment.cost.flops)),
            ("quiet", format!("{} of weights", bytes(segment.cost.weight_bytes))),
        ];
        for (row, (class, text)) in (0..).zip(rows) {
            let (x, y) = (x + 12, y + 21 + 18 * row);
            line(svg, format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>"));
        }
    }

    fn draw_arrow(&self, svg: &mut String, arrow: &Arrow) {
        let [start, .., end] = arrow.points.as_slice() else { return };
        let mut path = format!("M{} {}", start.0, start.1);
        for pair in arrow.points.windows(2) {
            let [(from, start), (x, y)] = [pair[0], pair[1]];
            let middle = from.midpoint(x);
            path.push_str(&format!(" C{middle} {start} {middle} {y} {x} {y}"));
        }
        let (x, y) = *end;
        let (label, names) = self.label(arrow);
        line(svg, format_args!("<g><title>{}</title>", escape(&names)));
        line(svg, format_args!("<path class=\"arrow\" d=\"{path}\"/>"));
        let (back, up, down) = (x - 8, y - 4, y + 4);
        let tip = format_args!("<path class=\"tip\" d=\"M{x} {y} L{back} {up} V{down} Z\"/>");
        line(svg, tip);
        // On the side of the line that it does not come from.
        let comes_from_above = start.1 < y;
        let (label, x, y) = (escape(&label), x - 12, if comes_from_above { y + 13 } else { y - 5 });
        let text = format_args!(
            "<text class=\"quiet\" x=\"{x}\" y=\"{y}\" text-anchor=\"end\" font-size=\"11\">{label}</text></g>"
        );
        line(svg, text);
    }

    /// What is written at an arrow, and what is said of it in full.
    fn label(&self, arrow: &Arrow) -> (String, String) {
        let names: Vec<&str> = arrow.values.iter().map(String::as_str).collect();
        let short = match names.as_slice() {
            [] => String::new(),
            [only] => shortened(only, LABEL_LENGTH),
            [first, more @ ..] => {
                format!("{} +{}", shortened(first, LABEL_LENGTH - 4), more.len())
            }
        };
        let names = names.join(", ");
        match arrow.to {
            End::Model(_) => (short, names),
            End::Segment(_) => {
                let sizes = &self.segments[arrow.from].output_bytes;
                let sum = arrow.values.iter().filter_map(|value| sizes.get(value)).sum();
                (bytes(sum), format!("{names}: {}", bytes(sum)))
            }
        }
    }
}

fn line(svg: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(svg, "{line}").expect("writing to a string succeeds");
}

/// A text of at most this many characters. Of paths and names, the end tells most, and the start
/// is next.
fn shortened(text: &str, length: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= length {
        return text.to_owned();
    }
    let (start, end) = (length / 3, length - length / 3 - 1);
    let kept = characters[..start].iter().chain(['…'].iter());
    kept.chain(&characters[characters.len() - end..]).collect()
}

/// A text that means itself in XML, whichever characters it has.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no way to write most of these.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_in_the_middle() {
        assert_eq!(shortened("logits", 6), "logits");
        assert_eq!(shortened("/encoder/layer.1/output", 10), "/en…output");
        assert_eq!(shortened("äöüäöüäöü", 8).chars().count(), 8);
    }

    #[test]
    fn text_means_itself_in_xml() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
        assert_eq!(escape("plain_name/0"), "plain_name/0");
        assert_eq!(escape("a\u{0}b\u{1b}"), "a\u{fffd}b\u{fffd}");
    }
}
