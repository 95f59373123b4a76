//! The Chromium family: where its programs lie and the arguments they are started with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::installed::Kind;
use crate::launch::Launch;
use crate::places::{self, Place};
use crate::sandbox;

/// Every place where a browser of the family may lie, preferred ones first.
pub(crate) fn candidates(search_path: &[PathBuf]) -> Vec<(Kind, PathBuf)> {
    let names: &[(Kind, &[&str])] = &[
        (Kind::Chrome, &["google-chrome-stable", "google-chrome", "chrome"]),
        (Kind::Chromium, &["chromium", "chromium-browser"]),
        (Kind::Edge, &["microsoft-edge-stable", "microsoft-edge", "msedge"]),
    ];
    let usual: &[Place] = match std::env::consts::OS {
        "macos" => &[
            (Kind::Chrome, "Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
            (Kind::Chromium, "Applications/Chromium.app/Contents/MacOS/Chromium"),
            (Kind::Edge, "Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge"),
        ],
        "windows" => &[
            (Kind::Chrome, "Google/Chrome/Application/chrome.exe"),
            (Kind::Chromium, "Chromium/Application/chrome.exe"),
            (Kind::Edge, "Microsoft/Edge/Application/msedge.exe"),
        ],
        _ => &[
            (Kind::Chrome, "opt/google/chrome/chrome"),
            (Kind::Chromium, "usr/bin/chromium"),
            (Kind::Chromium, "usr/lib/chromium/chromium"),
            (Kind::Edge, "opt/microsoft/msedge/msedge"),
        ],
    };
    places::in_path(names, search_path).chain(places::usual(usual)).collect()
}

/// Kind and version out of `Google Chrome 147.0.7727.0` and the like.
pub(crate) fn read_version(said: &str) -> Option<(Kind, String)> {
    let names = [
        ("Google Chrome ", Kind::Chrome),
        ("Chromium ", Kind::Chromium),
        ("Microsoft Edge ", Kind::Edge),
    ];
    names.into_iter().find_map(|(name, kind)| Some((kind, places::version_after(name, said)?)))
}

/// The arguments that start `launch` in `profile` on `address`.
pub(crate) fn arguments(launch: &Launch, profile: &Path, address: &str) -> Vec<OsString> {
    let mut profile_argument = OsString::from("--user-data-dir=");
    profile_argument.push(profile);
    let mut arguments = vec![profile_argument];
    arguments.extend(QUIET.iter().chain(AWAKE).map(OsString::from));
    if launch.headless {
        arguments.push("--headless".into());
    }
    if sandbox::is_impossible(launch.browser.kind) {
        arguments.push("--no-sandbox".into());
    }
    if shared_memory_is_small() {
        arguments.push("--disable-dev-shm-usage".into());
    }
    if launch.backends.webgpu {
        // Without it there is no adapter on Linux, and none in software anywhere.
        arguments.push("--enable-unsafe-webgpu".into());
    }
    // Of several `--enable-features`, Chromium heeds the last one only.
    let mut features = Vec::new();
    if launch.backends.webnn {
        features.push("WebMachineLearningNeuralNetwork");
    }
    for argument in &launch.extra_arguments {
        match argument.strip_prefix("--enable-features=") {
            Some(more) => features.push(more),
            None => arguments.push(argument.into()),
        }
    }
    if !features.is_empty() {
        arguments.push(format!("--enable-features={}", features.join(",")).into());
    }
    arguments.push(address.into());
    arguments
}

/// No questions, no traffic of its own.
const QUIET: &[&str] = &[
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    // A private profile has no secrets to put into the desktop's key ring, which would ask.
    "--password-store=basic",
    "--use-mock-keychain",
];

/// A page that computes must not be put to sleep because nobody looks at it.
const AWAKE: &[&str] = &[
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
];

/// Containers often have 64 MB in `/dev/shm`, and a page that fills it crashes; the flag moves
/// shared memory to the temporary folder, which is slower.
#[cfg(target_os = "linux")]
fn shared_memory_is_small() -> bool {
    const ENOUGH_BYTES: u64 = 1 << 30;
    rustix::fs::statvfs("/dev/shm")
        .map_or(true, |room| room.f_blocks.saturating_mul(room.f_frsize) < ENOUGH_BYTES)
}

#[cfg(not(target_os = "linux"))]
fn shared_memory_is_small() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Backends;
    use crate::launch::tests::a_launch;

    fn launch() -> Launch {
        a_launch(Kind::Chromium)
    }

    fn lines(launch: &Launch) -> Vec<String> {
        let arguments = arguments(launch, Path::new("/profile"), "file:///start");
        arguments.into_iter().map(|argument| argument.into_string().unwrap()).collect()
    }

    #[test]
    fn reads_kind_and_version() {
        let check = |said: &str, expected: Option<(Kind, &str)>| {
            let expected = expected.map(|(kind, version)| (kind, version.to_owned()));
            assert_eq!(read_version(said), expected, "{said}");
        };
        check("Chromium 147.0.7727.0", Some((Kind::Chromium, "147.0.7727.0")));
        check("Google Chrome 147.0.1.2 beta", Some((Kind::Chrome, "147.0.1.2")));
        check("Google Chrome for Testing 147.0.1.2", Some((Kind::Chrome, "147.0.1.2")));
        check("warning: x\nChromium 1.2 built on Debian", Some((Kind::Chromium, "1.2")));
        check("Microsoft Edge 147.0.3179.54 ", Some((Kind::Edge, "147.0.3179.54")));
        check("Chromium", None);
        check("Mozilla Firefox 153.0", None);
    }

    #[test]
    fn the_address_comes_last_and_the_profile_is_the_given_one() {
        let lines = lines(&launch());
        assert_eq!(lines.last().unwrap(), "file:///start");
        assert!(lines.contains(&"--user-data-dir=/profile".to_owned()));
    }

    #[test]
    fn nothing_opens_a_debugging_port() {
        assert!(!lines(&launch()).iter().any(|line| line.contains("remote-debugging")));
    }

    #[test]
    fn all_features_are_in_one_argument() {
        let mut launch = launch();
        launch.extra_arguments = vec!["--enable-features=Other".to_owned(), "--mute".to_owned()];
        let lines = lines(&launch);
        let features: Vec<_> = lines.iter().filter(|l| l.contains("enable-features")).collect();
        assert_eq!(features, ["--enable-features=WebMachineLearningNeuralNetwork,Other"]);
        assert!(lines.contains(&"--mute".to_owned()));
    }

    #[test]
    fn backends_that_are_off_leave_no_argument() {
        let mut launch = launch();
        launch.backends = Backends { webgpu: false, webnn: false };
        let lines = lines(&launch);
        assert!(!lines.iter().any(|line| line.contains("webgpu") || line.contains("features")));
    }

    #[test]
    fn a_window_is_opened_only_when_wanted() {
        let mut launch = launch();
        assert!(lines(&launch).contains(&"--headless".to_owned()));
        launch.headless = false;
        assert!(!lines(&launch).contains(&"--headless".to_owned()));
    }
}
