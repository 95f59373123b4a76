//! Writes what is generated from this crate: the TypeScript types and the golden frames.
//! `cargo xtask codegen` runs it; `cargo xtask check` compares what it writes with what is there.

mod golden;
mod typescript;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = std::env::args().nth(1).expect("the folder to write into");
    let write = |path: &str, text: String| {
        let path = Path::new(&root).join(path);
        std::fs::create_dir_all(path.parent().expect("a file is in a folder"))?;
        std::fs::write(path, text)
    };
    write("web/wire/src/messages.ts", typescript::types())?;
    write("spec/wire/golden.json", golden::cases())
}
