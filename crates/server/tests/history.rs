//! The history, for programs that cannot open the file because the server holds it.

mod common;

use std::time::SystemTime;

use common::{Scene, within};
use holdfast_devices::lane::LaneOptions;
use holdfast_history::{History, Overview, Writer, WriterOptions};
use holdfast_predict::{Record, Recorder, SettingChange};
use holdfast_server::{ClientError, ServerFile};
use hyper::StatusCode;

fn change(setting: &str) -> Record {
    Record::Setting(Box::new(SettingChange {
        timestamp: SystemTime::UNIX_EPOCH,
        hardware_platform: "cpu".to_owned(),
        setting: setting.to_owned(),
        before: 4.0,
        after: 8.0,
        reason: "by hand".to_owned(),
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_is_told_while_it_is_written_but_only_with_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let history = History::open(folder.path().join("history.duckdb")).unwrap();
    let writer = Writer::start(history.clone(), WriterOptions::default());
    let home = folder.path().to_owned();
    let scene = Scene::with(LaneOptions::default(), |options| {
        options.history = Some(history);
        options.home = Some(home);
    })
    .await;
    for setting in ["first", "second", "third"] {
        writer.record(change(setting));
    }
    writer.flush().unwrap();

    let file = ServerFile::find(folder.path()).unwrap();
    let overview = within(file.history(2)).await.unwrap();
    let settings: Vec<&str> = overview.settings.iter().map(|of| of.setting.as_str()).collect();
    assert_eq!(settings, ["second", "third"]);
    let usual: Overview = within(scene.control().get_json("/control/history")).await.unwrap();
    assert_eq!(usual.settings.len(), 3);

    let join = format!("Bearer {}", scene.token());
    for wrong in ["", &join] {
        let refused = scene.get("/control/history", &[("authorization", wrong)]).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        assert!(!refused.text().contains("second"));
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let scene = Scene::new().await;
    let ask = |path: &'static str| {
        let control = scene.control();
        async move { within(control.get(path)).await }
    };
    let refusal = |answer| match answer {
        Err(ClientError::Refused { status, .. }) => status,
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(refusal(ask("/control/history?limit=many").await), StatusCode::BAD_REQUEST);
    // It keeps none.
    assert_eq!(refusal(ask("/control/history").await), StatusCode::NOT_IMPLEMENTED);
}
