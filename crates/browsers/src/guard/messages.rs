//! What Holdfast and a guard say to each other.

use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use crate::exit::Ending;

/// What the guard is to do. It comes through the pipe, not on the command line, which others on
/// the machine could read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Variables on top of the guard's own.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The file or folder to remove when every process is gone.
    pub(crate) remove: OsString,
    /// A file for the key to a display that nobody sees, if the browser needs one.
    pub(crate) display: Option<OsString>,
}

/// What the guard tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Report {
    /// The browser's main process runs. Its id is also that of its process group.
    Started { pid: u32 },
    /// The program could not be started.
    CannotStart { os_error: Option<i32>, message: String },
    /// The main process is gone, and all others with it.
    Exited { ending: Ending, stderr: String, asked: bool },
    /// Everything is cleaned up, except for what is left.
    Ended { left: Option<String> },
}

/// The longest line that either side takes.
const LINE_BYTES: u64 = 1 << 20;

/// Reads the order from standard input.
#[cfg(unix)]
pub(super) fn read_order() -> io::Result<Order> {
    let line = read_line(&mut io::stdin().lock())?;
    let line = line.ok_or_else(|| io::Error::other("started without an order"))?;
    Ok(serde_json::from_str(&line)?)
}

impl Order {
    /// Sends the order to a guard.
    pub(crate) fn write(&self, pipe: &mut impl Write) -> io::Result<()> {
        write_line(pipe, self)
    }
}

impl Report {
    /// The next report, `None` at the end.
    pub(crate) fn read(pipe: &mut impl BufRead) -> io::Result<Option<Report>> {
        let Some(line) = read_line(pipe)? else { return Ok(None) };
        Ok(Some(serde_json::from_str(&line)?))
    }

    /// Sends the report. Nobody may be listening any more, which changes nothing for the guard.
    #[cfg(unix)]
    pub(super) fn send(&self) {
        let _ = write_line(&mut io::stdout().lock(), self);
    }
}

fn read_line(pipe: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    pipe.take(LINE_BYTES).read_line(&mut line)?;
    Ok((!line.is_empty()).then_some(line))
}

fn write_line(pipe: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    pipe.write_all(&line)?;
    pipe.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_back_as_they_were_sent() {
        let reports = [
            Report::Started { pid: 7 },
            Report::CannotStart { os_error: Some(2), message: "no\nsuch file".to_owned() },
            Report::Exited { ending: Ending::Signal(9), stderr: "a\nb".to_owned(), asked: true },
            Report::Ended { left: None },
        ];
        let mut bytes = Vec::new();
        for report in &reports {
            write_line(&mut bytes, report).unwrap();
        }
        let mut pipe = bytes.as_slice();
        for report in reports {
            assert_eq!(Report::read(&mut pipe).unwrap(), Some(report));
        }
        assert_eq!(Report::read(&mut pipe).unwrap(), None);
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        assert!(Report::read(&mut "Usage: holdfast\n".as_bytes()).is_err());
        assert!(Report::read(&mut vec![b'x'; 2 << 20].as_slice()).is_err());
    }
}
