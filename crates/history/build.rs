//! Lets programs find DuckDB's library when they start, without any variable of the environment.
//!
//! A crate can say so only for its own programs and tests, so every crate that makes some which
//! keep a history names this file as its build script.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=DUCKDB_LIB_DIR");
    let Some(folder) = env::var_os("DUCKDB_LIB_DIR").map(PathBuf::from) else {
        // Then it is where the system looks for libraries.
        return;
    };
    println!("cargo::rerun-if-changed={}", folder.display());
    if !folder.is_dir() {
        // Not an error: what is only checked is not linked.
        println!("cargo::warning=DuckDB's library is missing: run `cargo xtask setup`");
    }
    match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("windows") => copy_beside_programs(&folder.join("duckdb.dll")),
        Ok(system) => {
            // Beside the program first: that is where it is once both were moved elsewhere.
            let beside = if system == "macos" { "@executable_path" } else { "$ORIGIN" };
            for place in [Path::new(beside), &folder] {
                println!("cargo::rustc-link-arg=-Wl,-rpath,{}", place.display());
            }
        }
        Err(_) => {}
    }
}

/// Windows looks for libraries beside the program, and nowhere that a program could name.
fn copy_beside_programs(library: &Path) {
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    // This is `<target>/<profile>/build/<crate>/out`.
    let Some(profile) = out.ancestors().nth(3) else { return };
    for folder in [profile.to_owned(), profile.join("deps")] {
        if let Err(error) = std::fs::copy(library, folder.join("duckdb.dll")) {
            println!("cargo::warning=cannot copy {} there: {error}", library.display());
        }
    }
}
