//! Bars, as SVG inside a page.

/// A bar: what it is, what it says, how long it is, and whether it stands for sharing.
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) length: f64,
    pub(crate) shared: bool,
}

/// As wide as a small telephone shows without making the text smaller.
const WIDTH: f64 = 320.0;
const ROW: f64 = 26.0;
/// Room for names on the left and values on the right.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 78.0;

/// Bars under each other, in proportion to the longest.
pub(crate) fn bars(title: &str, bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
    let height = ROW * (bars.len() as f64 + 1.0);
    let mut svg = format!(
        "<svg class=\"bars\" role=\"img\" viewBox=\"0 0 {WIDTH} {height}\">\
         <title>{title}</title><text class=\"title\" x=\"0\" y=\"15\">{title}</text>"
    );
    for (row, bar) in bars.iter().enumerate() {
        let top = ROW * (row as f64 + 1.0);
        let part = if longest > 0.0 { bar.length / longest } else { 0.0 };
        // Even what is next to nothing can be seen.
        let width = (part * (WIDTH - LEFT - RIGHT)).max(1.0);
        let class = if bar.shared { "with" } else { "without" };
        let (middle, end, bar_top) = (top + 14.0, LEFT + width + 6.0, top + 2.0);
        svg.push_str(&format!(
            "<text x=\"0\" y=\"{middle}\">{}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{bar_top}\" width=\"{width:.1}\" height=\"17\" rx=\"2\"/>\
             <text x=\"{end:.1}\" y=\"{middle}\">{}</text>",
            bar.name, bar.value
        ));
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(length: f64) -> Bar {
        Bar { name: "with", value: "1 ms".to_owned(), length, shared: true }
    }

    #[test]
    fn bars_are_in_proportion_to_the_longest() {
        let svg = bars("time", &[bar(1.0), bar(4.0)]);
        assert!(svg.contains("width=\"45.0\"") && svg.contains("width=\"180.0\""), "{svg}");
    }

    #[test]
    fn what_is_nothing_can_be_seen_and_divides_nothing() {
        let svg = bars("memory", &[bar(0.0), bar(0.0)]);
        assert!(svg.contains("width=\"1.0\"") && !svg.contains("NaN"), "{svg}");
    }
}
