//! Where things are, and how steps are run and announced.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

/// The repository, with a shell that stands in its root.
pub(crate) struct Workspace {
    pub(crate) shell: Shell,
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    pub(crate) fn open() -> Result<Workspace> {
        let shell = Shell::new()?;
        // A relative target folder means one relative to where the user stands. The nested cargo
        // stands elsewhere.
        if let Some(target) = shell.var_os("CARGO_TARGET_DIR") {
            shell.set_var("CARGO_TARGET_DIR", std::path::absolute(target)?);
        }
        // Of the checkout that cargo was started in: two that share a target folder may share this
        // program as well.
        let manifest = shell.var_os("CARGO_MANIFEST_DIR").context("use `cargo xtask`")?;
        let root =
            Path::new(&manifest).parent().context("xtask is not inside the workspace")?.to_owned();
        shell.change_dir(&root);
        // This program is `<target>/<profile>/xtask`, however the target folder was chosen.
        let program = std::env::current_exe().context("cannot find this program's own path")?;
        let target = program
            .ancestors()
            .nth(2)
            .context("xtask was not started from a target folder: use `cargo xtask`")?
            .to_owned();
        Ok(Workspace { shell, root, target })
    }

    /// The folder of everything.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What runs in a browser.
    pub(crate) fn web(&self) -> PathBuf {
        self.root.join("web")
    }

    /// The folder of pinned third-party things.
    pub(crate) fn third_party(&self) -> PathBuf {
        self.root.join("third-party")
    }

    /// The folder that cargo builds into.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Builds the `holdfast` command for release and returns where it is.
    pub(crate) fn build_holdfast(&self) -> Result<PathBuf> {
        self.step("build holdfast (release)", || {
            cmd!(self.shell, "cargo build --release --package holdfast").quiet().run()?;
            Ok(())
        })?;
        let name = format!("holdfast{}", std::env::consts::EXE_SUFFIX);
        Ok(self.target.join("release").join(name))
    }

    /// Does one step, says its name before and the time it took after.
    pub(crate) fn step(&self, name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
        eprintln!("── {name}");
        let start = Instant::now();
        run().with_context(|| format!("failed: {name}"))?;
        eprintln!("   done in {:.1} s", start.elapsed().as_secs_f64());
        Ok(())
    }
}
