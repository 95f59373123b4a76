//! The pool as text.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_pool::{Batches, DeviceMetrics, Metrics, Times};
use holdfast_predict::Kept;
use holdfast_server::LaneStatus;

use super::browsers;
use crate::output::{bytes, plural, table_lines};

/// What was seen at one moment.
pub(super) struct View {
    pub(super) origin: String,
    pub(super) metrics: Metrics,
    /// Everything that joined, also what no model has asked for.
    pub(super) lanes: Vec<LaneStatus>,
    /// Names of models, by their graphs.
    pub(super) names: BTreeMap<String, String>,
}

impl View {
    pub(super) fn lines(&self) -> Vec<String> {
        let up = Duration::from_secs_f64(self.metrics.uptime_seconds.max(0.0));
        let mut lines = vec![format!("pool of {}, up {}", self.origin, span(up)), String::new()];
        lines.extend(self.devices());
        lines.push(String::new());
        let browsers = browsers::lines(&self.metrics.fleet);
        if !browsers.is_empty() {
            lines.extend(browsers);
            lines.push(String::new());
        }
        lines.extend(self.models());
        lines.push(String::new());
        lines.extend(self.counts());
        lines.push(String::new());
        lines.extend(self.times());
        lines
    }

    fn devices(&self) -> Vec<String> {
        let mut rows: Vec<Vec<String>> = self.metrics.devices.iter().map(device).collect();
        let devices = &self.metrics.devices;
        let unused = |lane: &&LaneStatus| devices.iter().all(|device| device.name != lane.name);
        rows.extend(self.lanes.iter().filter(unused).map(unused_lane));
        let header =
            ["device", "state", "accelerated", "in flight", "memory", "browser", "adapter"];
        // A narrow terminal cuts what comes last.
        table_lines(&header, header.len(), rows)
    }

    fn models(&self) -> Vec<String> {
        let name = |graph: Option<&String>, segment: &str| {
            let known = graph.and_then(|graph| self.names.get(graph));
            known.cloned().unwrap_or_else(|| format!("segment {segment}"))
        };
        let mut rows = Vec::new();
        for device in &self.metrics.devices {
            for model in &device.models {
                let state = if model.in_use > 0 { "running" } else { "ready" };
                let name = name(Some(&model.graph), &model.segment) + &sizes(&model.dims);
                let cells = [device.name.clone(), name, state.to_owned(), bytes(model.bytes)];
                rows.push(cells.into());
            }
            if let Some(segment) = &device.loading {
                let name = name(device.loading_graph.as_ref(), segment);
                let cells = [device.name.clone(), name, "loading".to_owned(), String::new()];
                rows.push(cells.into());
            }
        }
        if rows.is_empty() {
            return vec!["no model is loaded; `holdfast run` or `holdfast bench` loads one".into()];
        }
        table_lines(&["on", "model", "state", "weights"], 3, rows)
    }

    fn counts(&self) -> Vec<String> {
        let Metrics { connections, queue, throughput, batches, models, failovers, errors, .. } =
            &self.metrics;
        // As they go, not as they are spelled.
        let by_priority = ["high", "normal", "low"].map(|priority| {
            format!("{priority} {}", queue.by_priority.get(priority).copied().unwrap_or(0))
        });
        let oldest = match queue.length {
            0 => String::new(),
            _ => format!(", the oldest for {}", time(queue.oldest_ms)),
        };
        let listed = |counts: &BTreeMap<String, u64>| match counts.is_empty() {
            true => "none".to_owned(),
            false => {
                let each = counts.iter().map(|(class, count)| format!("{class} {count}"));
                each.collect::<Vec<_>>().join(", ")
            }
        };
        let lines = [
            (
                "queue",
                format!(
                    "{} waiting ({}){oldest}; {} of {} accepted",
                    queue.length,
                    by_priority.join(", "),
                    queue.accepted,
                    queue.limit,
                ),
            ),
            (
                "answered",
                format!(
                    "{} in all, {:.1} per second over the last minute",
                    throughput.answered, throughput.per_second,
                ),
            ),
            (
                "devices",
                format!(
                    "{} there, {} at work, {:.0} % of their room in use; at most {} at once, {} gone",
                    connections.current,
                    connections.active,
                    connections.utilisation * 100.0,
                    connections.max,
                    connections.gone,
                ),
            ),
            ("batches", of_batches(batches)),
            (
                "models",
                format!(
                    "{}, {} failed, {} to make room",
                    plural(models.loads as usize, "load"),
                    models.failed_loads,
                    plural(models.unloads as usize, "unload"),
                ),
            ),
            ("sharing", self.sharing()),
            ("failovers", failovers.to_string()),
            ("errors", listed(errors)),
        ];
        let recorded = self.metrics.recorded.map(|kept| ("history", of_history(kept)));
        let lines = lines.into_iter().chain(recorded);
        lines.map(|(what, text)| format!("{what:<9}  {text}")).collect()
    }

    /// What devices keep for models that have something in common.
    fn sharing(&self) -> String {
        let kept = self.metrics.devices.iter().map(|device| device.kept);
        let (mut tensors, mut held, mut hits, mut misses) = (0, 0, 0, 0);
        for one in kept {
            (tensors, held) = (tensors + one.tensors, held + one.bytes);
            (hits, misses) = (hits + one.hits, misses + one.misses);
        }
        let text = format!(
            "{} kept ({}); looked for {} times, found {hits}",
            plural(tensors, "tensor"),
            bytes(held),
            hits + misses,
        );
        match self.metrics.refused_plans.len() {
            0 => text,
            count => format!("{text}; {} refused, see --json", plural(count, "plan")),
        }
    }

    fn times(&self) -> Vec<String> {
        let times = &self.metrics.times;
        let row = |(what, of): (&str, &Times)| -> Vec<String> {
            let of_answers = [of.p50_ms, of.p95_ms, of.p99_ms, of.longest_ms];
            let cells = of_answers.into_iter().map(|ms| match of.count {
                0 => "-".to_owned(),
                _ => time(ms),
            });
            std::iter::once(what.to_owned()).chain(cells).collect()
        };
        let rows = [
            ("queue", &times.queue),
            ("transfer", &times.transfer),
            ("compute", &times.compute),
            ("readback", &times.readback),
        ];
        let rows = rows.into_iter().map(row).collect();
        table_lines(&["time in", "p50", "p95", "p99", "longest"], 1, rows)
    }
}

/// The sizes that a model was made for, which tell it from the same model for others.
fn sizes(dims: &BTreeMap<String, usize>) -> String {
    if dims.is_empty() {
        return String::new();
    }
    let each: Vec<String> = dims.iter().map(|(name, size)| format!("{name} {size}")).collect();
    format!(" ({})", each.join(", "))
}

fn of_history(kept: Kept) -> String {
    let Kept { written, dropped, failed } = kept;
    let written = plural(written as usize, "record");
    match (dropped, failed) {
        (0, 0) => written,
        _ => format!("{written}; {dropped} dropped, writing failed {failed} times"),
    }
}

fn of_batches(batches: &Batches) -> String {
    let Batches { count, requests, rows, proven, refuted } = *batches;
    let ran = match count {
        0 => "none yet".to_owned(),
        _ => format!("{count} with {requests} requests, {rows} rows"),
    };
    format!("{ran}; {} proven to keep every row's bits, {refuted} not", plural(proven, "kind"))
}

fn device(device: &DeviceMetrics) -> Vec<String> {
    let state = match device {
        DeviceMetrics { connected: false, .. } => "away",
        DeviceMetrics { loading: Some(_), .. } => "loading",
        DeviceMetrics { in_flight: 0, .. } => "idle",
        _ => "busy",
    };
    let mut running = format!("{} of {}", device.in_flight, device.slots);
    if device.share < 1.0 {
        running.push_str(&format!(" ({:.0} %)", device.share * 100.0));
    }
    // A lane's engine is named with the browser that it is in.
    let browser = device.engine.rsplit_once(" in ").map_or("-", |(_, browser)| browser);
    let memory = format!("{} of {}", bytes(device.model_bytes), bytes(device.model_bytes_limit));
    vec![
        device.name.clone(),
        state.to_owned(),
        if device.accelerated { "yes" } else { "no" }.to_owned(),
        running,
        memory,
        browser.to_owned(),
        device.adapter.clone(),
    ]
}

/// A lane that joined and was asked for nothing yet, so that nothing of it was measured.
fn unused_lane(lane: &LaneStatus) -> Vec<String> {
    let state = if lane.connected { "not used yet" } else { "away" };
    let cells = [&lane.name, state, "?", "-", "-", &lane.browser, &lane.adapter];
    cells.into_iter().map(str::to_owned).collect()
}

fn time(ms: f64) -> String {
    format!("{ms:.1} ms")
}

/// A length of time for people.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, _, _) => format!("{} {hours} h", plural(days as usize, "day")),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_pool::{
        Connections, KeptMetrics, LoadedModel, ModelMetrics, QueueMetrics, Throughput, TimesMetrics,
    };

    use super::*;

    fn empty() -> View {
        let device = DeviceMetrics {
            name: "cpu".to_owned(),
            backend: "cpu".to_owned(),
            engine: "onnxruntime 1.30.0".to_owned(),
            adapter: "AMD EPYC".to_owned(),
            accelerated: false,
            connected: true,
            share: 1.0,
            slots: 2,
            in_flight: 0,
            models: vec![],
            loading: None,
            loading_graph: None,
            model_bytes: 0,
            model_bytes_limit: 12_600_000_000,
            weight_bytes: 0,
            kept: KeptMetrics::default(),
        };
        let metrics = Metrics {
            uptime_seconds: 3.9,
            devices: vec![device],
            connections: Connections { current: 1, max: 1, idle: 1, ..Connections::default() },
            queue: QueueMetrics { limit: 16_384, ..QueueMetrics::default() },
            times: TimesMetrics::default(),
            throughput: Throughput::default(),
            batches: Batches::default(),
            models: ModelMetrics::default(),
            failovers: 0,
            errors: BTreeMap::new(),
            refused_plans: vec![],
            recorded: None,
            fleet: Default::default(),
        };
        let origin = "http://127.0.0.1:8765".to_owned();
        View { origin, metrics, lanes: vec![], names: BTreeMap::new() }
    }

    fn busy() -> View {
        let mut view = empty();
        let metrics = &mut view.metrics;
        metrics.recorded = Some(Kept { written: 1234, dropped: 5, failed: 2 });
        let loaded = |segment: &str, graph: &str, bytes, in_use| LoadedModel {
            segment: segment.to_owned(),
            graph: graph.to_owned(),
            dims: BTreeMap::new(),
            shared: false,
            bytes,
            in_use,
        };
        let lane = DeviceMetrics {
            name: "chrome-2/webgpu".to_owned(),
            backend: "webgpu".to_owned(),
            engine: "ONNX Runtime Web in Chrome 147.0".to_owned(),
            adapter: "apple metal-3".to_owned(),
            accelerated: true,
            in_flight: 2,
            models: vec![
                loaded("aaaaaaaaaa", "minilm", 90_300_000, 2),
                loaded("bbbbbbbbbb", "of a model that is gone", 1000, 0),
            ],
            model_bytes: 90_301_000,
            model_bytes_limit: 2_000_000_000,
            weight_bytes: 0,
            kept: KeptMetrics::default(),
            ..metrics.devices[0].clone()
        };
        let loading = DeviceMetrics {
            name: "chrome-3/wasm".to_owned(),
            backend: "wasm".to_owned(),
            adapter: "WebAssembly on 4 of 8 cores".to_owned(),
            accelerated: false,
            in_flight: 0,
            models: vec![],
            loading: Some("aaaaaaaaaa".to_owned()),
            loading_graph: Some("minilm".to_owned()),
            model_bytes: 0,
            ..lane.clone()
        };
        let away = DeviceMetrics {
            name: "firefox-1/wasm".to_owned(),
            engine: "ONNX Runtime Web in Firefox 153.0".to_owned(),
            connected: false,
            loading: None,
            ..loading.clone()
        };
        // For each length of its inputs, WebNN has a graph of its own.
        let of_length = |segment, length, in_use| LoadedModel {
            dims: [("batch".to_owned(), 1), ("tokens".to_owned(), length)].into(),
            ..loaded(segment, &format!("minilm for {length}"), 90_300_000, in_use)
        };
        let fixed = DeviceMetrics {
            name: "chrome-5/webnn".to_owned(),
            backend: "webnn".to_owned(),
            models: vec![of_length("cccccccccc", 8, 0), of_length("dddddddddd", 32, 1)],
            ..loading.clone()
        };
        let fixed = DeviceMetrics { in_flight: 1, loading: None, loading_graph: None, ..fixed };
        metrics.devices.extend([lane, loading, away, fixed]);
        metrics.uptime_seconds = 3725.0;
        metrics.connections = Connections {
            current: 4,
            max: 5,
            active: 2,
            idle: 2,
            utilisation: 0.25,
            gone: 1,
            ..Connections::default()
        };
        metrics.queue = QueueMetrics {
            length: 7,
            by_priority: [("high", 1), ("low", 2), ("normal", 4)]
                .map(|(name, count)| (name.to_owned(), count))
                .into(),
            accepted: 9,
            limit: 16_384,
            oldest_ms: 12.34,
        };
        let times = |p50_ms| Times {
            count: 1234,
            mean_ms: p50_ms,
            p50_ms,
            p95_ms: 2.0 * p50_ms,
            p99_ms: 3.0 * p50_ms,
            longest_ms: 40.0 * p50_ms,
        };
        metrics.times = TimesMetrics {
            queue: times(3.0),
            transfer: times(0.5),
            compute: times(21.7),
            readback: times(0.2),
        };
        metrics.throughput = Throughput { answered: 1234, per_second: 45.67 };
        metrics.batches = Batches { count: 12, requests: 96, rows: 96, proven: 1, refuted: 2 };
        metrics.models = ModelMetrics { loads: 3, failed_loads: 1, unloads: 1 };
        metrics.failovers = 4;
        metrics.errors = [("timeout", 1), ("memory", 2)].map(|(c, n)| (c.to_owned(), n)).into();
        for graph in ["minilm", "minilm for 8", "minilm for 32"] {
            view.names.insert(graph.to_owned(), "all-MiniLM-L6-v2".to_owned());
        }
        let lane = |name: &str, connected| LaneStatus {
            name: name.to_owned(),
            backend: "webnn".to_owned(),
            adapter: "WebNN, asked for npu".to_owned(),
            browser: "Chrome 147.0".to_owned(),
            connected,
            accelerated: false,
            in_flight: 0,
            connections: 1,
            last_cut: None,
            away_seconds: 0.0,
            round_trip_ms: None,
            sent_bytes: 0,
            received_bytes: 0,
            engine_restarts: 0,
            last_loss: None,
            late_answers: 0,
            operations: BTreeMap::new(),
        };
        // One that is a device already is not shown twice.
        view.lanes = vec![lane("chrome-2/webgpu", true), lane("chrome-4/webnn", true)];
        view
    }

    #[test]
    fn a_pool_without_work_says_what_to_do() {
        insta::assert_snapshot!(empty().lines().join("\n"), @r#"
        pool of http://127.0.0.1:8765, up 3 s

        device  state  accelerated  in flight  memory          browser  adapter
        cpu     idle   no           0 of 2     0 B of 12.6 GB  -        AMD EPYC

        no model is loaded; `holdfast run` or `holdfast bench` loads one

        queue      0 waiting (high 0, normal 0, low 0); 0 of 16384 accepted
        answered   0 in all, 0.0 per second over the last minute
        devices    1 there, 0 at work, 0 % of their room in use; at most 1 at once, 0 gone
        batches    none yet; 0 kinds proven to keep every row's bits, 0 not
        models     0 loads, 0 failed, 0 unloads to make room
        sharing    0 tensors kept (0 B); looked for 0 times, found 0
        failovers  0
        errors     none

        time in   p50  p95  p99  longest
        queue       -    -    -        -
        transfer    -    -    -        -
        compute     -    -    -        -
        readback    -    -    -        -
        "#);
    }

    #[test]
    fn a_pool_at_work_shows_who_does_what() {
        insta::assert_snapshot!(busy().lines().join("\n"), @r#"
        pool of http://127.0.0.1:8765, up 1 h 2 min

        device           state         accelerated  in flight  memory             browser        adapter
        cpu              idle          no           0 of 2     0 B of 12.6 GB     -              AMD EPYC
        chrome-2/webgpu  busy          yes          2 of 2     90.3 MB of 2.0 GB  Chrome 147.0   apple metal-3
        chrome-3/wasm    loading       no           0 of 2     0 B of 2.0 GB      Chrome 147.0   WebAssembly on 4 of 8 cores
        firefox-1/wasm   away          no           0 of 2     0 B of 2.0 GB      Firefox 153.0  WebAssembly on 4 of 8 cores
        chrome-5/webnn   busy          no           1 of 2     0 B of 2.0 GB      Chrome 147.0   WebAssembly on 4 of 8 cores
        chrome-4/webnn   not used yet  ?            -          -                  Chrome 147.0   WebNN, asked for npu

        on               model                                  state    weights
        chrome-2/webgpu  all-MiniLM-L6-v2                       running  90.3 MB
        chrome-2/webgpu  segment bbbbbbbbbb                     ready     1.0 kB
        chrome-3/wasm    all-MiniLM-L6-v2                       loading
        chrome-5/webnn   all-MiniLM-L6-v2 (batch 1, tokens 8)   ready    90.3 MB
        chrome-5/webnn   all-MiniLM-L6-v2 (batch 1, tokens 32)  running  90.3 MB

        queue      7 waiting (high 1, normal 4, low 2), the oldest for 12.3 ms; 9 of 16384 accepted
        answered   1234 in all, 45.7 per second over the last minute
        devices    4 there, 2 at work, 25 % of their room in use; at most 5 at once, 1 gone
        batches    12 with 96 requests, 96 rows; 1 kind proven to keep every row's bits, 2 not
        models     3 loads, 1 failed, 1 unload to make room
        sharing    0 tensors kept (0 B); looked for 0 times, found 0
        failovers  4
        errors     memory 2, timeout 1
        history    1234 records; 5 dropped, writing failed 2 times

        time in       p50      p95      p99   longest
        queue      3.0 ms   6.0 ms   9.0 ms  120.0 ms
        transfer   0.5 ms   1.0 ms   1.5 ms   20.0 ms
        compute   21.7 ms  43.4 ms  65.1 ms  868.0 ms
        readback   0.2 ms   0.4 ms   0.6 ms    8.0 ms
        "#);
    }

    #[test]
    fn lengths_of_time_are_for_people() {
        let check = |seconds, text: &str| assert_eq!(span(Duration::from_secs(seconds)), text);
        check(0, "0 s");
        check(61, "1 min 1 s");
        check(7325, "2 h 2 min");
        check(90_000, "1 day 1 h");
    }

    #[test]
    fn a_device_that_spares_itself_says_how_much_it_offers() {
        let whole = empty().metrics.devices[0].clone();
        assert_eq!(device(&whole)[3], "0 of 2");
        let sparing = DeviceMetrics { share: 0.25, slots: 1, ..whole };
        assert_eq!(device(&sparing)[3], "0 of 1 (25 %)");
    }
}
