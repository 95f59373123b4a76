//! Figures one after the other, in the order in which they were measured.

use super::frame::{Axis, Frame};
use super::scale::Scale;
use super::{colour, legend};
use crate::html::escape;

/// A series of figures.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    /// Where there is none, the line has a gap.
    pub(crate) values: Vec<Option<f64>>,
    pub(crate) shape: Shape,
}

/// How figures are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One line, for figures that follow from each other.
    Line,
    Dots,
    /// Wide enough to be seen around dots.
    Rings,
}

/// Something that happened before the figure with this number.
pub(crate) struct Mark {
    pub(crate) before: usize,
    pub(crate) about: String,
}

/// What a timeline shows.
pub(crate) struct Timeline<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) lines: Vec<Line<'a>>,
    pub(crate) marks: Vec<Mark>,
    /// A value that is not to be exceeded.
    pub(crate) limit: Option<f64>,
    pub(crate) write: fn(f64) -> String,
}

pub(crate) fn timeline(shown: &Timeline<'_>) -> String {
    let count = shown.lines.iter().map(|line| line.values.len()).max().unwrap_or(0);
    let all = shown.lines.iter().flat_map(|line| line.values.iter().flatten().copied());
    let frame = Frame {
        height: 260.0,
        x: Axis {
            label: shown.x,
            scale: Scale::Linear { low: 0.0, high: count.max(2) as f64 },
            write: |value| format!("{value:.0}"),
        },
        y: Axis {
            label: shown.y,
            scale: Scale::from_zero(all.chain(shown.limit)),
            write: shown.write,
        },
    };
    let (_, top) = frame.y.scale.ends();
    let mut inside = String::new();
    for mark in &shown.marks {
        let at = mark.before as f64;
        let line = frame.line("mark", (at, 0.0), (at, top));
        inside.push_str(&format!("<g>{line}<title>{}</title></g>", escape(&mark.about)));
    }
    if let Some(limit) = shown.limit {
        inside.push_str(&frame.line("limit", (0.0, limit), (count.max(2) as f64, limit)));
    }
    for (series, line) in shown.lines.iter().enumerate() {
        inside.push_str(&draw(&frame, line, &colour(series)));
    }
    let names: Vec<&str> = shown.lines.iter().map(|line| line.name).collect();
    format!("{}{}", legend(&names), frame.draw(shown.title, &inside))
}

fn draw(frame: &Frame<'_>, line: &Line<'_>, class: &str) -> String {
    let places = line
        .values
        .iter()
        .enumerate()
        .map(|(index, value)| value.map(|value| (frame.x(index as f64 + 0.5), frame.y(value))));
    let circles = |kind: &str, radius: f64| {
        let circle = |(x, y): (f64, f64)| {
            format!("<circle class=\"{kind} {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>")
        };
        places.clone().flatten().map(circle).collect()
    };
    match line.shape {
        Shape::Dots => return circles("dot", 2.5),
        Shape::Rings => return circles("ring", 4.0),
        Shape::Line => {}
    }
    let mut path = String::new();
    let mut pen_is_down = false;
    for place in places {
        if let Some((x, y)) = place {
            path.push_str(&format!("{}{x:.1} {y:.1}", if pen_is_down { "L" } else { "M" }));
        }
        pen_is_down = place.is_some();
    }
    format!("<path class=\"line {class}\" d=\"{path}\"/>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(values: Vec<Option<f64>>) -> String {
        timeline(&Timeline {
            title: "errors",
            x: "run",
            y: "error",
            lines: vec![Line { name: "latency", values, shape: Shape::Line }],
            marks: vec![Mark { before: 1, about: "refined".to_owned() }],
            limit: Some(0.15),
            write: |value| format!("{value:.1}"),
        })
    }

    #[test]
    fn a_gap_lifts_the_pen() {
        let svg = shown(vec![Some(0.1), Some(0.2), None, Some(0.3), Some(0.1)]);
        let path = svg.split("d=\"").nth(1).unwrap();
        assert_eq!(path.split('"').next().unwrap().matches('M').count(), 2, "{svg}");
    }

    #[test]
    fn what_does_not_follow_from_each_other_is_not_joined() {
        let values = vec![Some(0.1), None, Some(0.3)];
        let line = Line { name: "memory", values, shape: Shape::Rings };
        let svg = timeline(&Timeline {
            title: "memory",
            x: "run",
            y: "MiB",
            lines: vec![line],
            marks: Vec::new(),
            limit: None,
            write: |value| format!("{value:.1}"),
        });
        assert_eq!((svg.matches("ring s0").count(), svg.matches("<path").count()), (2, 0), "{svg}");
    }

    #[test]
    fn without_a_gap_it_is_one_line_with_limit_and_marks() {
        let svg = shown(vec![Some(0.1), Some(0.2)]);
        let path = svg.split("d=\"").nth(1).unwrap();
        assert_eq!(path.split('"').next().unwrap().matches('M').count(), 1, "{svg}");
        assert!(svg.contains("limit") && svg.contains("refined"));
    }
}
