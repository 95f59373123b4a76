//! Firefox: where its program lies, the arguments it is started with, and the settings of a
//! profile that opens one page and does nothing else.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::installed::Kind;
use crate::launch::Launch;
use crate::places::{self, Place};

/// Every place where Firefox may lie, preferred ones first.
pub(crate) fn candidates(search_path: &[PathBuf]) -> Vec<(Kind, PathBuf)> {
    let names: &[(Kind, &[&str])] = &[(Kind::Firefox, &["firefox", "firefox-esr"])];
    let usual: &[Place] = match std::env::consts::OS {
        "macos" => &[(Kind::Firefox, "Applications/Firefox.app/Contents/MacOS/firefox")],
        "windows" => &[(Kind::Firefox, "Mozilla Firefox/firefox.exe")],
        _ => &[
            (Kind::Firefox, "usr/lib/firefox-esr/firefox-esr"),
            (Kind::Firefox, "usr/lib/firefox/firefox"),
            (Kind::Firefox, "opt/firefox/firefox"),
        ],
    };
    places::in_path(names, search_path).chain(places::usual(usual)).collect()
}

/// Kind and version out of `Mozilla Firefox 153.7.0esr` and the like.
pub(crate) fn read_version(said: &str) -> Option<(Kind, String)> {
    places::version_after("Mozilla Firefox ", said).map(|version| (Kind::Firefox, version))
}

/// The arguments that start `launch` in `profile` on `address`.
pub(crate) fn arguments(launch: &Launch, profile: &Path, address: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    if launch.headless {
        arguments.push("--headless".into());
    }
    // Else it would hand the address to a Firefox that a person has open.
    arguments.push("--no-remote".into());
    arguments.push("--profile".into());
    arguments.push(profile.into());
    arguments.extend(launch.extra_arguments.iter().map(OsString::from));
    arguments.push(address.into());
    arguments
}

/// What Firefox is told beside its arguments.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    // Nobody reads the reports.
    vec![("MOZ_CRASHREPORTER_DISABLE".into(), "1".into())]
}

/// Writes the settings into a profile. Firefox reads the file at every start.
pub(crate) fn write_settings(launch: &Launch, profile: &Path) -> io::Result<()> {
    std::fs::write(profile.join("user.js"), settings(launch.backends.webgpu))
}

fn settings(webgpu: bool) -> String {
    let webgpu = WEBGPU.iter().map(|name| (*name, if webgpu { "true" } else { "false" }));
    let all = QUIET.iter().chain(AWAKE).copied().chain(webgpu);
    all.map(|(name, value)| format!("user_pref(\"{name}\", {value});\n")).collect()
}

/// The worker of a lane is what uses the GPU. The block list knows drivers that draw wrongly, and
/// no driver in software is allowed by it.
const WEBGPU: [&str; 3] =
    ["dom.webgpu.enabled", "dom.webgpu.workers.enabled", "gfx.webgpu.ignore-blocklist"];

/// No questions, no pages of its own, no traffic of its own.
const QUIET: &[(&str, &str)] = &[
    ("app.normandy.enabled", "false"),
    ("app.shield.optoutstudies.enabled", "false"),
    ("app.update.auto", "false"),
    ("app.update.enabled", "false"),
    ("browser.aboutwelcome.enabled", "false"),
    ("browser.newtab.preload", "false"),
    ("browser.newtabpage.enabled", "false"),
    ("browser.region.update.enabled", "false"),
    ("browser.safebrowsing.downloads.enabled", "false"),
    ("browser.safebrowsing.malware.enabled", "false"),
    ("browser.safebrowsing.phishing.enabled", "false"),
    ("browser.search.update", "false"),
    ("browser.sessionstore.resume_from_crash", "false"),
    ("browser.shell.checkDefaultBrowser", "false"),
    ("browser.startup.homepage_override.mstone", "\"ignore\""),
    ("browser.startup.page", "0"),
    ("browser.topsites.contile.enabled", "false"),
    ("datareporting.healthreport.uploadEnabled", "false"),
    ("datareporting.policy.dataSubmissionEnabled", "false"),
    ("datareporting.policy.dataSubmissionPolicyBypassNotification", "true"),
    ("dom.push.connection.enabled", "false"),
    // Asked by a page whether it may keep its data, it would wait for a person for ever.
    ("dom.storageManager.prompt.testing", "true"),
    ("dom.storageManager.prompt.testing.allow", "true"),
    ("extensions.getAddons.cache.enabled", "false"),
    ("extensions.systemAddon.update.enabled", "false"),
    ("extensions.update.enabled", "false"),
    ("media.gmp-manager.updateEnabled", "false"),
    ("network.captive-portal-service.enabled", "false"),
    ("network.connectivity-service.enabled", "false"),
    ("network.http.speculative-parallel-limit", "0"),
    ("network.prefetch-next", "false"),
    ("signon.rememberSignons", "false"),
    ("startup.homepage_welcome_url", "\"\""),
    ("toolkit.startup.max_resumed_crashes", "-1"),
    ("toolkit.telemetry.enabled", "false"),
    ("toolkit.telemetry.reportingpolicy.firstRun", "false"),
    ("toolkit.telemetry.unified", "false"),
    // Processes for tabs that nobody will open.
    ("dom.ipc.processPrelaunch.enabled", "false"),
];

/// A page that computes must not be put to sleep, or be taken for a hung one.
const AWAKE: &[(&str, &str)] = &[
    ("browser.tabs.unloadOnLowMemory", "false"),
    ("dom.ipc.processHangMonitor", "false"),
    ("dom.max_script_run_time", "0"),
    ("dom.min_background_timeout_value", "4"),
    ("dom.timeout.enable_budget_timer_throttling", "false"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::tests::a_launch;

    fn lines(launch: &Launch) -> Vec<String> {
        let arguments = arguments(launch, Path::new("/profile"), "file:///start");
        arguments.into_iter().map(|argument| argument.into_string().unwrap()).collect()
    }

    #[test]
    fn reads_the_version_and_nothing_of_others() {
        let check = |said: &str, expected: Option<&str>| {
            let expected = expected.map(|version| (Kind::Firefox, version.to_owned()));
            assert_eq!(read_version(said), expected, "{said}");
        };
        check("Mozilla Firefox 153.7.0esr", Some("153.7.0esr"));
        check("warning\nMozilla Firefox 153.0\n", Some("153.0"));
        check("Mozilla Firefox", None);
        check("Chromium 147.0", None);
    }

    #[test]
    fn the_address_comes_last_and_the_profile_is_the_given_one() {
        let mut launch = a_launch(Kind::Firefox);
        let expected = ["--headless", "--no-remote", "--profile", "/profile", "file:///start"];
        assert_eq!(lines(&launch), expected);
        launch.headless = false;
        launch.extra_arguments = vec!["--safe-mode".to_owned()];
        let expected = ["--no-remote", "--profile", "/profile", "--safe-mode", "file:///start"];
        assert_eq!(lines(&launch), expected);
    }

    #[test]
    fn webgpu_is_on_only_when_it_is_wanted() {
        assert!(settings(true).contains("user_pref(\"dom.webgpu.enabled\", true);\n"));
        assert!(settings(false).contains("user_pref(\"dom.webgpu.enabled\", false);\n"));
    }

    #[test]
    fn nothing_opens_a_debugging_port() {
        assert!(
            !settings(true).contains("remote-debugging") && !settings(true).contains("devtools")
        );
        let launch = a_launch(Kind::Firefox);
        assert!(!lines(&launch).iter().any(|line| line.contains("remote-debugging")));
    }
}
