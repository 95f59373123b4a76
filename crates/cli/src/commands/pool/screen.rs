//! Text that is drawn over itself.

use std::io::{self, Write};

use console::Term;

/// The lower part of a terminal, for as long as this lives.
pub(super) struct Screen {
    terminal: Term,
    /// Lines that stand there from the last time.
    drawn: usize,
}

impl Screen {
    pub(super) fn new() -> Screen {
        let terminal = Term::stdout();
        // A terminal without a cursor to hide is no worse for it.
        let _ = terminal.hide_cursor();
        Screen { terminal, drawn: 0 }
    }

    /// Puts lines in the place of the last ones, in one write so that nothing flickers.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let (height, width) = self.terminal.size();
        let lines = fit(lines, usize::from(width), usize::from(height));
        let text = redrawn(&lines, self.drawn);
        self.drawn = lines.len();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
    }
}

/// What fits: a line that wraps, or one that scrolls away, could not be drawn over.
fn fit(lines: &[String], width: usize, height: usize) -> Vec<String> {
    let cut = |line: &String| match line.chars().count() > width {
        true => line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => line.clone(),
    };
    // The cursor stands on a line of its own below.
    let room = height.saturating_sub(1).max(1);
    if lines.len() <= room {
        return lines.iter().map(cut).collect();
    }
    let hidden = lines.len() - (room - 1);
    let more = format!("… {hidden} more lines; `holdfast pool --once` prints all");
    lines.iter().take(room - 1).chain([&more]).map(cut).collect()
}

/// Up to the first line, then each line over the old one, then away with what is left below.
fn redrawn(lines: &[String], drawn: usize) -> String {
    let mut text = match drawn {
        0 => String::new(),
        drawn => format!("\x1b[{drawn}A\r"),
    };
    for line in lines {
        text.push_str(line);
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("line {number}")).collect()
    }

    #[test]
    fn what_fits_is_drawn_as_it_is() {
        assert_eq!(fit(&lines(3), 80, 24), lines(3));
        assert_eq!(fit(&lines(23), 6 + 1, 24), lines(23));
    }

    #[test]
    fn what_does_not_fit_is_cut_and_told() {
        assert_eq!(fit(&lines(1), 4, 24), ["lin…"]);
        let fitted = fit(&lines(24), 80, 24);
        assert_eq!(fitted.len(), 23);
        assert_eq!(fitted[22], "… 2 more lines; `holdfast pool --once` prints all");
    }

    #[test]
    fn the_second_time_goes_over_the_first() {
        assert_eq!(redrawn(&lines(1), 0), "line 1\x1b[K\n\x1b[J");
        assert_eq!(redrawn(&lines(1), 5), "\x1b[5A\rline 1\x1b[K\n\x1b[J");
    }
}
