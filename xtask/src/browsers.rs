//! The browsers of other makers that tests need.
//!
//! In the gate they have to be there, so they are installed. A person's machine is left alone: there
//! the tests say at their end which browser was missing, and how to get it.

use std::path::Path;

use anyhow::{Context, Result};
use xshell::cmd;

use crate::workspace::Workspace;

/// What is needed, by a file that shows that it is there, with the package of Debian that has it.
/// Firefox computes on a GPU only through a Vulkan driver; the one of Mesa works without a card.
const NEEDED: [(&[&str], &str); 4] = [
    (&["/usr/bin/firefox-esr", "/usr/bin/firefox"], "firefox-esr"),
    (&["/usr/bin/WebKitWebDriver"], "webkit2gtk-driver"),
    (&["/usr/bin/Xvfb"], "xvfb"),
    (&["/usr/share/vulkan/icd.d"], "mesa-vulkan-drivers"),
];

/// Installs what is missing with apt-get, where everything has to be tested: under `CI`.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    let is_ci = shell.var("CI").is_ok_and(|value| !value.is_empty());
    if !is_ci || !cfg!(target_os = "linux") {
        return Ok(());
    }
    let is_there = |paths: &[&str]| paths.iter().any(|path| Path::new(path).exists());
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(paths, _)| !is_there(paths)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        eprintln!("── the browsers to test with are there");
        return Ok(());
    }
    workspace.step(&format!("install with apt-get: {}", missing.join(", ")), || {
        // As root there may be no sudo; as another user it must not ask, for nobody would answer.
        let is_root = cmd!(shell, "id -u").quiet().read()? == "0";
        let sudo: &[&str] = if is_root { &[] } else { &["sudo", "--non-interactive"] };
        let _quiet = shell.push_env("DEBIAN_FRONTEND", "noninteractive");
        let words = |rest: &[&str]| -> Vec<String> {
            sudo.iter().chain(rest).map(|word| (*word).to_owned()).collect()
        };
        let update = words(&["apt-get", "--quiet", "--quiet", "update"]);
        let mut install = words(&["apt-get", "--quiet", "--quiet", "--yes"]);
        install.extend(["--no-install-recommends".to_owned(), "install".to_owned()]);
        install.extend(missing.iter().map(|package| (*package).to_owned()));
        for words in [update, install] {
            let (program, arguments) = words.split_first().context("an empty command")?;
            cmd!(shell, "{program} {arguments...}").quiet().ignore_stdout().run().with_context(
                || format!("install these yourself and run again: {}", missing.join(" ")),
            )?;
        }
        Ok(())
    })
}
