//! The store from outside: what goes in comes out, once, whole, or as an error.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests may")]

mod support;

mod choosing;
mod collecting;
mod damage;
mod derived;
mod importing;
mod naming;
mod real;
mod sharing;
