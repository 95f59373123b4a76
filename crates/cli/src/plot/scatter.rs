//! What was predicted against what was measured: on the dashed line they are equal.

use super::frame::{Axis, Frame};
use super::scale::Scale;
use super::{colour, legend};
use crate::html::escape;

/// A prediction with its interval, and what was measured.
pub(crate) struct Point {
    /// What it belongs to, by position among the names.
    pub(crate) series: usize,
    pub(crate) measured: f64,
    pub(crate) predicted: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// What is shown when it is pointed at.
    pub(crate) about: String,
}

/// One plot for all series. Both axes are logarithmic and have the same scale.
pub(crate) fn scatter(
    title: &str,
    unit: &str,
    series: &[&str],
    points: &[Point],
    write: fn(f64) -> String,
) -> String {
    let values = points.iter().flat_map(|point| [point.measured, point.predicted]);
    let scale = Scale::log(values);
    let (measured, predicted) = (format!("measured, {unit}"), format!("predicted, {unit}"));
    let frame = Frame {
        height: 420.0,
        x: Axis { label: &measured, scale, write },
        y: Axis { label: &predicted, scale, write },
    };
    let (low, high) = scale.ends();
    let mut inside = frame.line("same", (low, low), (high, high));
    for point in points {
        let class = colour(point.series);
        inside.push_str(&frame.line(
            &format!("whisker {class}"),
            (point.measured, point.low),
            (point.measured, point.high),
        ));
        inside.push_str(&format!(
            "<circle class=\"dot {class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}</title></circle>",
            frame.x(point.measured),
            frame.y(point.predicted),
            escape(&point.about)
        ));
    }
    format!("{}{}", legend(series), frame.draw(title, &inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_a_dot_and_its_interval() {
        let point = |measured: f64| Point {
            series: 0,
            measured,
            predicted: measured * 1.1,
            low: measured,
            high: measured * 1.2,
            about: "a < b".to_owned(),
        };
        let svg = scatter("latency", "ms", &["cpu"], &[point(1.0), point(30.0)], |v| v.to_string());
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("whisker").count(), 2);
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn without_points_there_is_an_empty_frame() {
        let svg = scatter("latency", "ms", &[], &[], |v| v.to_string());
        assert!(!svg.contains("<circle") && !svg.contains("NaN"), "{svg}");
    }
}
