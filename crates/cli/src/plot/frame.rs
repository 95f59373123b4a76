//! The frame of a plot: two axes with round values, a grid, and places inside.

use super::scale::Scale;
use crate::html::escape;

pub(super) const WIDTH: f64 = 640.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 40.0;

/// An axis: what it shows, in which places, and how its values are written.
pub(super) struct Axis<'a> {
    pub(super) label: &'a str,
    pub(super) scale: Scale,
    pub(super) write: fn(f64) -> String,
}

pub(super) struct Frame<'a> {
    pub(super) height: f64,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
}

impl Frame<'_> {
    pub(super) fn x(&self, value: f64) -> f64 {
        LEFT + self.x.scale.place(value) * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        self.height - BOTTOM - self.y.scale.place(value) * (self.height - TOP - BOTTOM)
    }

    /// A line between two points, given by their values.
    pub(super) fn line(&self, class: &str, from: (f64, f64), to: (f64, f64)) -> String {
        let ((x1, y1), (x2, y2)) = ((self.x(from.0), self.y(from.1)), (self.x(to.0), self.y(to.1)));
        format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        )
    }

    /// The whole plot: axes, grid, and what is drawn into it.
    pub(super) fn draw(&self, title: &str, inside: &str) -> String {
        let Frame { height, x, y } = self;
        let (bottom, right) = (height - BOTTOM, WIDTH - RIGHT);
        let mut svg = format!(
            "<svg class=\"plot\" role=\"img\" viewBox=\"0 0 {WIDTH} {height}\"><title>{}</title>",
            escape(title)
        );
        for tick in y.scale.ticks() {
            let (at, text) = (self.y(tick), (y.write)(tick));
            svg.push_str(&format!(
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                LEFT - 6.0,
                at + 4.0
            ));
        }
        for tick in x.scale.ticks() {
            let (at, text) = (self.x(tick), (x.write)(tick));
            svg.push_str(&format!(
                "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom + 4.0,
                bottom + 17.0
            ));
        }
        svg.push_str(&format!(
            "<text x=\"{LEFT}\" y=\"13\">{}</text>\
             <text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            escape(y.label),
            height - 5.0,
            escape(x.label)
        ));
        svg.push_str(inside);
        svg.push_str("</svg>");
        svg
    }
}
