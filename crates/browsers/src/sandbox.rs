//! Whether Chromium can build its sandbox here.
//!
//! It is turned off only where the browser would refuse to start with it. The one page that a
//! launched browser opens is Holdfast's own.

use crate::installed::Kind;

/// What Chromium prints when it finds no way to build its sandbox.
pub(crate) const COMPLAINT: &str = "No usable sandbox!";

/// True where the sandbox is known not to work: as root, and for the packaged Chromium where the
/// machine gives user namespaces to nobody or to registered programs only (Ubuntu does). An
/// installed browser has a helper or a registration for that, the packaged one cannot have it.
pub(crate) fn is_impossible(kind: Kind) -> bool {
    runs_as_root() || (kind == Kind::Packaged && user_namespaces_are_closed(&read_setting))
}

/// The settings of the kernel and its variants that close user namespaces, with the value that
/// does it.
const CLOSED: [(&str, &str); 3] = [
    ("user/max_user_namespaces", "0"),
    ("kernel/unprivileged_userns_clone", "0"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1"),
];

fn user_namespaces_are_closed(setting: &dyn Fn(&str) -> Option<String>) -> bool {
    CLOSED.iter().any(|(name, closed)| setting(name).is_some_and(|value| value.trim() == *closed))
}

/// A setting that is not there closes nothing.
fn read_setting(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/{name}")).ok()
}

#[cfg(unix)]
fn runs_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(not(unix))]
fn runs_as_root() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: &[(&str, &str)], expected: bool) {
        let setting = |name: &str| {
            let found = settings.iter().find(|(each, _)| *each == name);
            found.map(|(_, value)| format!("{value}\n"))
        };
        assert_eq!(user_namespaces_are_closed(&setting), expected, "{settings:?}");
    }

    #[test]
    fn any_setting_can_close_user_namespaces() {
        for (name, closed) in CLOSED {
            check(&[(name, closed)], true);
        }
    }

    #[test]
    fn settings_that_are_open_or_not_there_close_nothing() {
        check(&[], false);
        let restricted = "kernel/apparmor_restrict_unprivileged_userns";
        check(&[("user/max_user_namespaces", "96343"), (restricted, "0")], false);
    }
}
