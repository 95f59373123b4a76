//! Real browsers: found, started on a link, owned and ended.
//!
//! An [`Installed`] browser is a program on this machine that [`find()`] found: Chrome, Chromium,
//! Edge, Firefox, WebKitGTK; the Chromium from npm is one too, unpacked on first use. A [`Launch`] says how to start one: the link to open,
//! a profile, with or without a window. A [`Browser`] is one that runs; whoever holds it owns
//! the whole process tree, and closing or dropping it ends every process and removes a private
//! profile.
//!
//! Between Holdfast and each browser sits a small [`guard`] process. It is what keeps the
//! promise when Holdfast itself is killed: it notices, ends the browser, and cleans up.
//!
//! A launched browser gets nothing but a link, exactly as if a person had opened it. There is no
//! remote-debugging port and no driver, so there is nothing on the machine to hijack. This crate
//! knows nothing of what the page does.
//!
//! ```no_run
//! use holdfast_browsers::{GuardCommand, Launch, find};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let found = find("/home/me/.cache/holdfast".as_ref(), &|line| eprintln!("{line}"));
//! let guard = GuardCommand::this_program(["guard"])?;
//! let link = "http://127.0.0.1:8765/join#token=…";
//! let browser = Launch::new(found.pick(None)?.clone(), link, guard).start().await?;
//! println!("{} runs as process {}", browser.name(), browser.pid());
//! browser.close().await?;
//! # Ok(())
//! # }
//! ```

mod browser;
mod chromium;
mod display;
mod error;
mod exit;
mod find;
mod firefox;
pub mod guard;
mod installed;
mod launch;
#[cfg(unix)]
mod orphan;
mod owner;
mod packaged;
mod places;
mod processes;
mod safari;
mod sandbox;
mod start_page;
mod watch;
mod webkit;

pub use browser::{Browser, BrowserId};
pub use error::BrowserError;
pub use exit::{Ending, Exit};
pub use find::{Found, at, find};
pub use installed::{Installed, Kind};
pub use launch::{Backends, GuardCommand, Launch, Profile};
pub use packaged::packaged;
pub use processes::{Process, tree_memory};
pub use watch::{Health, Tab, Watch};
