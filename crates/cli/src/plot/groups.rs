//! Bars in groups: the same figure of several things, side by side.

use super::{colour, legend};
use crate::html::escape;

/// Bars that belong together; one for each name of the legend, `None` where there is none.
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) bars: Vec<Option<f64>>,
}

const WIDTH: f64 = 640.0;
/// Room for names, at least and at most, and what a letter takes of it.
const LEFT: (f64, f64) = (150.0, 300.0);
const LETTER: f64 = 6.4;
const RIGHT: f64 = 90.0;
const BAR: f64 = 15.0;
const GAP: f64 = 12.0;

/// Groups under each other, all bars in proportion to the longest.
pub(crate) fn groups(
    title: &str,
    names: &[&str],
    groups: &[Group],
    write: fn(f64) -> String,
) -> String {
    let all = || groups.iter().flat_map(|group| group.bars.iter().flatten().copied());
    let longest = all().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let letters = groups.iter().map(|group| group.name.chars().count()).max().unwrap_or(0);
    let left = (letters as f64 * LETTER + 12.0).clamp(LEFT.0, LEFT.1);
    let (mut top, mut inside) = (4.0, String::new());
    for group in groups {
        let label = top + BAR * group.bars.len() as f64 / 2.0 + 4.0;
        inside.push_str(&format!(
            "<text class=\"value\" x=\"0\" y=\"{label:.1}\">{}</text>",
            escape(&group.name)
        ));
        for (series, bar) in group.bars.iter().enumerate() {
            if let Some(value) = bar {
                let part = if longest > 0.0 { value / longest } else { 0.0 };
                // Even what is next to nothing can be seen.
                let width = (part * (WIDTH - left - RIGHT)).max(1.0);
                inside.push_str(&format!(
                    "<rect class=\"{}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\"/>\
                     <text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    colour(series),
                    top + 1.0,
                    BAR - 2.0,
                    left + width + 6.0,
                    top + BAR - 3.5,
                    write(*value)
                ));
            }
            top += BAR;
        }
        top += GAP;
    }
    format!(
        "{}<svg class=\"plot\" role=\"img\" viewBox=\"0 0 {WIDTH} {top}\"><title>{}</title>{inside}</svg>",
        legend(names),
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion_and_missing_ones_are_left_out() {
        let shown = [Group { name: "cpu".to_owned(), bars: vec![Some(1.0), None, Some(2.0)] }];
        let svg = groups("latency", &["a", "b", "c"], &shown, |value| value.to_string());
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.contains("width=\"200.0\"") && svg.contains("width=\"400.0\""), "{svg}");
    }

    #[test]
    fn what_is_nothing_divides_nothing() {
        let shown = [Group { name: "cpu".to_owned(), bars: vec![Some(0.0)] }];
        assert!(!groups("latency", &["a"], &shown, |v| v.to_string()).contains("NaN"));
    }
}
