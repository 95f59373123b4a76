//! A real browser runs real models: the packaged Chromium, Firefox and WebKit, started by the real
//! program's guard, served by the real server.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod commands;
mod computing;
mod families;
mod fleet;
mod lifted;
mod load;
mod losing;
mod power;
mod proxy;
mod returning;
mod rig;
mod scene;
mod sharing;
