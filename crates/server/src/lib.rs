//! The HTTP listener of Holdfast: the page that browsers join by, the blobs that they fetch, the
//! sockets that lanes talk over, and control for other programs of the same user.
//!
//! A [`Server`] listens on loopback, or anywhere with [`Tls`]. Whoever has its *join link* can
//! lend it a browser. Whoever can read its [`ServerFile`] can control it.
//!
//! Nobody gets in by accident: every request is checked for the host that it names and the page
//! that it comes from before anything else looks at it.

mod assets;
mod blobs;
mod checks;
mod client;
mod context;
mod control;
mod error;
mod execute;
mod file;
mod history;
mod listen;
mod lock;
mod pack;
mod pages;
mod patient;
mod run;
mod server;
mod site;
mod socket;
mod tls;

pub use assets::find_assets;
pub use client::{Client, ClientError};
pub use control::{LaneStatus, OperationStatus, Status};
pub use error::ServerError;
pub use file::ServerFile;
pub use holdfast_devices::Secret;
pub use server::{Limits, Server, ServerOptions};
pub use tls::Tls;
