//! What is recorded is what is read.

use holdfast_history::{History, InferenceSummary, Overview, WriterOptions};
use holdfast_predict::{Kept, Record, Recorder};

use crate::samples::*;

#[test]
fn what_is_recorded_is_what_is_read() {
    let Scene { history, writer, .. } = Scene::new();
    writer.record(Record::Validation(Box::new(validation(1))));
    writer.record(Record::Impact(Box::new(impact())));
    writer.record(Record::Refinement(Box::new(refinement())));
    writer.record(Record::Trend(Box::new(trend("latency", -0.4))));
    writer.record(Record::Setting(Box::new(setting("batching_size"))));
    writer.record(Record::Run(Box::new(run())));
    writer.record(one("mini"));
    writer.flush().unwrap();
    let overview = history.overview(10).unwrap();
    let wanted = Overview {
        validations: vec![validation(1)],
        impacts: vec![impact()],
        refinements: vec![refinement()],
        trends: vec![trend("latency", -0.4)],
        settings: vec![setting("batching_size")],
        inferences: vec![InferenceSummary {
            model: "mini".to_owned(),
            backend: "cpu".to_owned(),
            answered: 1,
            failed: 0,
            compute_p50_seconds: Some(0.005),
            compute_p90_seconds: Some(0.005),
            reused_bytes: 1000,
        }],
    };
    assert_eq!(overview, wanted);
    assert_eq!(writer.kept(), Kept { written: 7, dropped: 0, failed: 0 });
}

#[test]
fn an_empty_history_has_an_empty_overview_and_no_predictor() {
    let scene = Scene::new();
    assert_eq!(scene.history.overview(10).unwrap(), Overview::default());
    assert_eq!(scene.history.predictor().unwrap(), None);
}

#[test]
fn the_newest_are_shown_and_the_newest_is_last() {
    let Scene { history, writer, .. } = Scene::new();
    (0..5).for_each(|number| writer.record(Record::Validation(Box::new(validation(number)))));
    for (metric, strength) in [("latency", 0.1), ("memory", 0.2), ("latency", 0.3)] {
        writer.record(Record::Trend(Box::new(trend(metric, strength))));
    }
    writer.flush().unwrap();
    let overview = history.overview(2).unwrap();
    assert_eq!(overview.validations, [validation(3), validation(4)]);
    assert_eq!(overview.trends, [trend("latency", 0.3), trend("memory", 0.2)]);
}

#[test]
fn inferences_that_failed_are_counted_but_not_timed() {
    let Scene { history, writer, .. } = Scene::new();
    for (seconds, error) in [(0.001, None), (0.003, None), (9.0, Some("timeout"))] {
        writer.record(Record::Inference(Box::new(inference("mini", seconds, error))));
    }
    writer.record(Record::Inference(Box::new(inference("broken", 1.0, Some("device")))));
    writer.flush().unwrap();
    let [broken, mini] = &history.overview(1).unwrap().inferences[..] else { panic!("not two") };
    assert_eq!((broken.answered, broken.failed, broken.compute_p50_seconds), (0, 1, None));
    assert_eq!((mini.answered, mini.failed), (2, 1));
    assert!((mini.compute_p50_seconds.unwrap() - 0.002).abs() < 1e-9);
}

#[test]
fn the_predictor_is_the_last_one_that_was_kept() {
    let Scene { history, writer, .. } = Scene::new();
    for content in ["{\"a\":1}", "{\"a\":2}"] {
        writer.record(Record::Predictor(content.to_owned()));
    }
    writer.flush().unwrap();
    assert_eq!(history.predictor().unwrap().as_deref(), Some("{\"a\":2}"));
    writer.record(Record::Predictor("{\"a\":3}".to_owned()));
    writer.flush().unwrap();
    assert_eq!(history.predictor().unwrap().as_deref(), Some("{\"a\":3}"));
}

#[test]
fn what_is_no_number_is_left_out_and_what_has_no_end_can_be_said_in_json() {
    let Scene { history, writer, .. } = Scene::new();
    let mut endless = validation(1);
    endless.predicted_latency_high = f64::INFINITY;
    let mut nothing = validation(2);
    nothing.actual_latency = f64::NAN;
    writer.record(Record::Validation(Box::new(endless)));
    writer.record(Record::Validation(Box::new(nothing)));
    writer.flush().unwrap();
    let overview = history.overview(10).unwrap();
    assert_eq!(overview.validations.len(), 1);
    let json = serde_json::to_string(&overview).unwrap();
    assert_eq!(serde_json::from_str::<Overview>(&json).unwrap(), overview);
}

#[test]
fn the_oldest_rows_go_when_there_are_too_many() {
    let options = WriterOptions { retention: 20, ..WriterOptions::default() };
    let Scene { history, writer, .. } = Scene::with(options);
    for number in 0..50 {
        writer.record(Record::Validation(Box::new(validation(number))));
        writer.flush().unwrap();
    }
    // Cleared up after each tenth of what is kept, beside the work: so ask once more.
    writer.record(one("mini"));
    writer.record(one("mini"));
    writer.flush().unwrap();
    let kept = history.overview(100).unwrap().validations;
    assert!((20..=23).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept.last(), Some(&validation(49)));
}

#[test]
fn rows_stay_while_there_are_few() {
    let options = WriterOptions { retention: 100, ..WriterOptions::default() };
    let Scene { history, writer, .. } = Scene::with(options);
    (0..90).for_each(|number| writer.record(Record::Validation(Box::new(validation(number)))));
    writer.flush().unwrap();
    assert_eq!(history.overview(1000).unwrap().validations.len(), 90);
}

#[test]
fn a_writer_that_ends_writes_what_is_left() {
    let Scene { folder, history, writer } = Scene::new();
    writer.record(one("mini"));
    drop(writer);
    drop(history);
    let again = History::open(folder.path().join("history.duckdb")).unwrap();
    assert_eq!(again.overview(1).unwrap().inferences[0].answered, 1);
}

#[test]
fn two_handles_on_one_path_are_one_file() {
    let Scene { folder, writer, .. } = Scene::new();
    writer.record(one("mini"));
    writer.flush().unwrap();
    let roundabout = folder.path().join(".").join("history.duckdb");
    let second = History::open(roundabout).unwrap();
    assert_eq!(second.overview(1).unwrap().inferences[0].answered, 1);
}

#[test]
fn a_file_that_was_let_go_can_be_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.duckdb");
    let open = |_| {
        let path = path.clone();
        std::thread::spawn(move || {
            for _ in 0..10 {
                assert_eq!(History::open(&path).unwrap().overview(1).unwrap(), Overview::default());
            }
        })
    };
    let threads: Vec<_> = (0..3).map(open).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn recording_never_waits_and_what_finds_no_room_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    // A folder where the file should be: it can never be opened.
    let path = folder.path().join("history.duckdb");
    std::fs::create_dir(&path).unwrap();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let warn = {
        let told = told.clone();
        std::sync::Arc::new(move |message: &str| told.lock().unwrap().push(message.to_owned()))
    };
    let options = WriterOptions { room: 600, warn, ..WriterOptions::default() };
    let writer = holdfast_history::Writer::start(History::at(&path), options);
    writer.record(one("mini"));
    assert!(writer.flush().is_err());
    (0..1000).for_each(|_| writer.record(one("mini")));
    let counts = writer.kept();
    assert_eq!((counts.written, counts.dropped), (0, 400), "one of them waits with the writer");
    assert!(counts.failed >= 1);
    drop(writer);
    let told = told.lock().unwrap();
    let told_of = |words: &str| told.iter().filter(|message| message.contains(words)).count();
    assert_eq!(told_of("tries again"), 1, "{told:?}");
    assert_eq!(told_of("records are dropped"), 1, "{told:?}");
}
