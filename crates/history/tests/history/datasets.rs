//! The validation dataset.

use holdfast_history::HistoryError;
use holdfast_predict::{Record, Recorder};

use crate::samples::*;

/// Parquet needs nothing that is not in the library, and a name is only a name.
#[test]
fn a_dataset_is_read_by_others_whatever_its_name_is() {
    let Scene { folder, history, writer } = Scene::new();
    (0..3).for_each(|number| writer.record(Record::Validation(Box::new(validation(number)))));
    writer.flush().unwrap();
    for name in ["it's; DROP TABLE inferences --.parquet", "plain.CSV", "both ' and \".csv"] {
        let path = folder.path().join(name);
        assert_eq!(history.export(&path).unwrap(), 3, "{name}");
        let elsewhere = duckdb::Connection::open_in_memory().unwrap();
        let sql = format!(
            "SELECT count(*), sum(actual_latency), max(latency_error_rate) FROM '{}'",
            path.to_str().unwrap().replace('\'', "''")
        );
        let row = elsewhere
            .query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap();
        let (count, latency, rate): (i64, f64, f64) = row;
        assert_eq!((count, latency), (3, 60.0), "{name}");
        assert!((rate - 0.1).abs() < 1e-9, "{name}");
    }
    assert_eq!(history.overview(10).unwrap().validations.len(), 3);
}

#[test]
fn another_ending_is_refused_and_a_folder_that_is_not_there_is_named() {
    let Scene { folder, history, .. } = Scene::new();
    for name in ["data.json", "data", "missing/data.csv"] {
        let error = history.export(folder.path().join(name)).unwrap_err();
        assert!(matches!(error, HistoryError::Export { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}
