//! Writes small models of every kind into a folder, as starting points for the fuzzer.
//!
//! `cargo run --example seeds -- fuzz/corpus/read`

#[path = "../tests/samples/mod.rs"]
mod samples;

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(std::io::Error::other("name a folder to write to"));
    };
    std::fs::create_dir_all(&folder)?;
    for (index, model) in samples::models().iter().enumerate() {
        std::fs::write(folder.join(format!("model-{index}")), holdfast_graph::encode(model))?;
    }
    Ok(())
}
