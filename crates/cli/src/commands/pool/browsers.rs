//! The browsers that the pool started, as text.

use std::time::Duration;

use holdfast_pool::{BrowserMetrics, BrowserState, FleetMetrics, ScalingEvent, ScalingStep};

use super::view::span;
use crate::output::{bytes, plural, table_lines};

/// Events that are shown; the others are in `--json`.
const EVENTS: usize = 3;

/// Nothing where no browser was ever started, or is to be.
pub(super) fn lines(fleet: &FleetMetrics) -> Vec<String> {
    if fleet.max == 0 || (fleet.started == 0 && fleet.failing.is_empty()) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if !fleet.browsers.is_empty() {
        let header = ["browser", "state", "for", "memory", "replaced", "lanes"];
        let rows = fleet.browsers.iter().map(browser).collect();
        lines.extend(table_lines(&header, header.len(), rows));
    }
    lines.push(format!(
        "{} of {} to {}; {} started, {} replaced, at most {} at once",
        plural(fleet.browsers.len(), "browser"),
        fleet.min,
        fleet.max,
        fleet.started,
        fleet.restarts,
        fleet.most,
    ));
    for failing in &fleet.failing {
        lines.push(format!("{} is left alone for a while: {}", failing.what, failing.reason));
    }
    let shown = fleet.events.len().saturating_sub(EVENTS);
    lines.extend(fleet.events[shown..].iter().map(event));
    lines
}

fn browser(browser: &BrowserMetrics) -> Vec<String> {
    let state = match browser.state {
        BrowserState::Starting => "starting",
        BrowserState::Joining => "joining",
        BrowserState::Serving => "serving",
        BrowserState::Draining => "draining",
        BrowserState::Closing => "closing",
    };
    let memory = match (browser.memory_bytes, browser.memory_limit_bytes) {
        (Some(memory), Some(limit)) => format!("{} of {}", bytes(memory), bytes(limit)),
        _ => "-".to_owned(),
    };
    let lanes = match browser.lanes.is_empty() {
        true => "-".to_owned(),
        false => browser.lanes.join(" "),
    };
    vec![
        browser.name.clone(),
        state.to_owned(),
        span(seconds(browser.since_seconds)),
        memory,
        browser.restarts.to_string(),
        lanes,
    ]
}

fn event(event: &ScalingEvent) -> String {
    let what = match event.what {
        ScalingStep::Start => "was started",
        ScalingStep::Join => "joined",
        ScalingStep::Drain => "finishes what it has",
        ScalingStep::Close => "was closed",
        ScalingStep::Fail => "failed",
    };
    format!("after {} {} {what}: {}", span(seconds(event.at_seconds)), event.browser, event.why)
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

#[cfg(test)]
mod tests {
    use holdfast_pool::Failing;

    use super::*;

    #[test]
    fn a_fleet_tells_its_browsers_and_what_happened_to_them() {
        let serving = BrowserMetrics {
            name: "packaged #2".to_owned(),
            kind: "packaged".to_owned(),
            version: "147.0".to_owned(),
            process: Some(7),
            profile: None,
            memory_bytes: Some(412_000_000),
            memory_limit_bytes: Some(4_000_000_000),
            lanes: vec!["chromium-2/wasm".to_owned(), "chromium-3/wasm".to_owned()],
            restarts: 1,
            state: BrowserState::Serving,
            since_seconds: 62.4,
        };
        let starting = BrowserMetrics {
            name: "firefox #3".to_owned(),
            memory_bytes: None,
            lanes: vec![],
            restarts: 0,
            state: BrowserState::Starting,
            since_seconds: 0.2,
            ..serving.clone()
        };
        let event = |at_seconds, what, why: &str| ScalingEvent {
            at_seconds,
            what,
            browser: "packaged #1".to_owned(),
            why: why.to_owned(),
        };
        let fleet = FleetMetrics {
            min: 1,
            max: 4,
            most: 2,
            started: 3,
            restarts: 1,
            browsers: vec![serving, starting],
            failing: vec![Failing {
                what: "edge".to_owned(),
                reason: "it is not there".to_owned(),
            }],
            events: vec![
                event(0.1, ScalingStep::Start, "this is too long ago"),
                event(0.1, ScalingStep::Start, "wasm is wanted"),
                event(2.0, ScalingStep::Join, "its page is there"),
                event(61.0, ScalingStep::Fail, "its tab crashed"),
            ],
        };
        insta::assert_snapshot!(lines(&fleet).join("\n"), @r#"
        browser      state     for        memory              replaced  lanes
        packaged #2  serving   1 min 2 s  412.0 MB of 4.0 GB  1         chromium-2/wasm chromium-3/wasm
        firefox #3   starting  0 s        -                   0         -
        2 browsers of 1 to 4; 3 started, 1 replaced, at most 2 at once
        edge is left alone for a while: it is not there
        after 0 s packaged #1 was started: wasm is wanted
        after 2 s packaged #1 joined: its page is there
        after 1 min 1 s packaged #1 failed: its tab crashed
        "#);
    }

    #[test]
    fn a_pool_that_starts_no_browsers_does_not_speak_of_them() {
        assert_eq!(lines(&FleetMetrics::default()), Vec::<String>::new());
        assert_eq!(
            lines(&FleetMetrics { max: 2, ..FleetMetrics::default() }),
            Vec::<String>::new()
        );
    }
}
