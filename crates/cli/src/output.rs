//! What the user reads: tables, JSON, progress, errors.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

/// Prints a JSON value.
pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    Ok(writeln!(out)?)
}

/// Prints a line. Unlike `println!`, a reader that went away is an error, not a panic.
pub(crate) fn line(text: impl AsRef<str>) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{}", text.as_ref())?)
}

/// Prints a table. Columns after the first `left` ones are numbers.
pub(crate) fn table(header: &[&str], left: usize, rows: Vec<Vec<String>>) -> anyhow::Result<()> {
    table_lines(header, left, rows).iter().try_for_each(line)
}

/// The lines of a table.
pub(crate) fn table_lines(header: &[&str], left: usize, rows: Vec<Vec<String>>) -> Vec<String> {
    let header = header.iter().map(|title| (*title).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let columns = rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    let text = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(text).collect()
}

/// Prints an error and what caused it, in one sentence.
pub(crate) fn print_error(error: &anyhow::Error, json: bool) {
    print_message(&message(error), json);
}

/// An error and what caused it, in one sentence.
pub(crate) fn message(error: &anyhow::Error) -> String {
    // A message often quotes its cause already.
    let mut message = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    // Engines end theirs with a line break.
    message.trim_end().to_owned()
}

/// An error that is a sentence already.
pub(crate) fn print_message(message: &str, json: bool) {
    let text =
        if json { json!({ "error": message }).to_string() } else { format!("error: {message}") };
    // Where nobody reads errors, the exit code still tells.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Something that the user should know, but that did not stop us.
pub(crate) fn warn(message: impl AsRef<str>) {
    let _ = writeln!(io::stderr(), "warning: {}", message.as_ref());
}

/// Whether the reader of our output went away, as `head` does.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json =
            cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(io::ErrorKind::BrokenPipe)
    })
}

/// A size for people.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    let unit = units.iter().find(|(_, size)| bytes as f64 >= *size);
    unit.map_or(format!("{bytes} B"), |(name, size)| format!("{:.1} {name}", bytes as f64 / size))
}

/// A size, and what it would be without sharing where that makes a difference.
pub(crate) fn bytes_instead_of(stored: u64, apart: u64) -> String {
    let differs = apart as f64 > stored as f64 * 1.01;
    let instead = if differs { format!(" instead of {}", bytes(apart)) } else { String::new() };
    format!("{}{instead}", bytes(stored))
}

/// A large count for people.
pub(crate) fn count(value: f64) -> String {
    let units = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    let unit = units.iter().find(|(_, size)| value >= *size);
    unit.map_or(format!("{value:.0}"), |(name, size)| format!("{:.1} {name}", value / size))
}

/// A time for people.
pub(crate) fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

/// `1 model`, `2 models`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A line on the terminal that says what is going on. Nothing where nobody watches.
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    pub(crate) fn new(message: impl Into<Cow<'static, str>>) -> Spinner {
        if !io::stderr().is_terminal() {
            return Spinner(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner().with_message(message);
        bar.enable_steady_tick(Duration::from_millis(100));
        Spinner(bar)
    }

    pub(crate) fn say(&self, message: impl Into<Cow<'static, str>>) {
        self.0.set_message(message);
    }

    /// Prints something while the line is out of the way.
    pub(crate) fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A bar for a download of known size.
pub(crate) fn download_bar(total: u64) -> ProgressBar {
    let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template);
    let bar = ProgressBar::new(total);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
