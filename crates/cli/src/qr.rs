//! The join link as a QR code, so that a phone need not be typed on.

use std::io::{self, IsTerminal};

use anyhow::Context;
use qrcode::{Color, EcLevel, QrCode};

use crate::output;

/// Light modules around the code; a reader needs four to find it.
const QUIET: usize = 4;

/// Shows a link as a QR code where somebody may point a phone at it, or if it is `asked` for, and
/// says what to do where a phone cannot use the link.
pub(crate) fn show(link: &str, asked: bool) -> anyhow::Result<()> {
    let on_terminal = io::stdout().is_terminal();
    if !asked && !on_terminal {
        return Ok(());
    }
    let only_here = is_loopback(link);
    if asked || !only_here {
        output::line(draw(link, on_terminal)?.trim_end_matches('\n'))?;
    }
    if only_here {
        output::line(
            "only this machine can use that link; for a phone or another computer, serve with\n  \
             holdfast serve --address 0.0.0.0 --tls self-signed",
        )?;
    }
    Ok(())
}

/// Whether a link leads to the machine itself.
fn is_loopback(link: &str) -> bool {
    let (_, rest) = link.split_once("://").unwrap_or(("", link));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Two modules in each character, one above the other.
///
/// With `colours` it is black on white whatever the terminal's own are. Without, light modules are
/// drawn, as is right for light text on a dark ground.
fn draw(link: &str, colours: bool) -> anyhow::Result<String> {
    // The least correction makes the largest modules; a screen has no stains.
    let code = QrCode::with_error_correction_level(link, EcLevel::L)
        .context("the link is too long for a QR code")?;
    let width = code.width();
    let is_dark = |x: usize, y: usize| {
        let inside = |at: usize| at.checked_sub(QUIET).filter(|at| *at < width);
        matches!((inside(x), inside(y)), (Some(x), Some(y)) if code[(x, y)] == Color::Dark)
    };
    let side = width + 2 * QUIET;
    let mut text = String::new();
    for y in (0..side).step_by(2) {
        if colours {
            text.push_str("\x1b[38;5;16;48;5;231m");
        }
        for x in 0..side {
            // Below an odd last line is nothing, which is as light as the rest.
            let is_drawn = |y: usize| is_dark(x, y) == colours;
            text.push(match (is_drawn(y), is_drawn(y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        text.push_str(if colours { "\x1b[0m\n" } else { "\n" });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_this_machine_is_told_from_others() {
        for link in ["http://127.0.0.1:8765/join#t", "http://localhost/join", "https://[::1]:1/"] {
            assert!(is_loopback(link), "{link}");
        }
        for link in
            ["https://192.0.2.7:8765/join#t", "https://studio.local/", "https://[fe80::1]:1/"]
        {
            assert!(!is_loopback(link), "{link}");
        }
    }

    #[test]
    fn both_ways_of_drawing_show_the_same_modules() {
        let link = "https://192.0.2.7:8765/join#0123456789abcdef";
        let plain = draw(link, false).unwrap();
        let coloured = draw(link, true).unwrap();
        let inverse = |c: char| match c {
            '█' => ' ',
            ' ' => '█',
            '▀' => '▄',
            '▄' => '▀',
            other => other,
        };
        let bare = coloured.replace("\x1b[38;5;16;48;5;231m", "").replace("\x1b[0m", "");
        assert_eq!(bare.chars().map(inverse).collect::<String>(), plain);
        // Every line is as wide, and the edge is quiet.
        let lines: Vec<&str> = plain.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()));
        assert!(lines[0].chars().chain(lines[1].chars()).all(|c| c == '█'));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(draw(&"x".repeat(5000), true).is_err());
    }
}
