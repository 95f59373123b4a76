//! Plots, as SVG inside a page: a frame with two axes, and what is drawn into it. Colours come from
//! the page's style, so that they follow its light or dark mode.

mod frame;
mod groups;
mod scale;
mod scatter;
mod timeline;

pub(crate) use groups::{Group, groups};
pub(crate) use scatter::{Point, scatter};
pub(crate) use timeline::{Line, Mark, Shape, Timeline, timeline};

/// What plots look like.
pub(crate) const STYLE: &str = include_str!("plot.css");

/// Colours that can be told apart, by people who see fewer of them too; the style names them.
const COLOURS: usize = 5;

/// The class of the colour of a series.
fn colour(series: usize) -> String {
    format!("s{}", series % COLOURS)
}

/// The names of series, beside their colours.
fn legend(names: &[&str]) -> String {
    if names.len() < 2 {
        return String::new();
    }
    let entry = |(series, name): (usize, &&str)| {
        format!("<span class=\"{}\">{}</span>", colour(series), crate::html::escape(name))
    };
    let entries: String = names.iter().enumerate().map(entry).collect();
    format!("<div class=\"legend\">{entries}</div>")
}
