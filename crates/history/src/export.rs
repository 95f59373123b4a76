//! The validation dataset: all predictions with their measurements, for other tools.

use std::path::Path;

use duckdb::Connection;

use crate::error::{HistoryError, sentence};
use crate::rows::VALIDATIONS;

pub(crate) fn export(connection: &Connection, path: &Path) -> Result<u64, HistoryError> {
    let failed = |reason: String| HistoryError::Export { path: path.to_owned(), reason };
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    let format = match ending.as_deref() {
        Some("parquet") => "FORMAT parquet",
        Some("csv") => "FORMAT csv, HEADER true",
        _ => return Err(failed("the name must end in .parquet or .csv".to_owned())),
    };
    // An absolute path is never taken for an address of something elsewhere.
    let absolute = std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
    let target = absolute.to_str().ok_or_else(|| failed("the path is not UTF-8".to_owned()))?;
    let sql = format!(
        "COPY (SELECT * FROM {} ORDER BY id) TO {} ({format})",
        VALIDATIONS.name,
        quoted(target)
    );
    let count = connection.execute(&sql, []).map_err(|error| failed(sentence(&error)))?;
    Ok(count as u64)
}

/// A text that means itself in SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_does_not_end_the_text() {
        assert_eq!(quoted("it's; DROP TABLE x --"), "'it''s; DROP TABLE x --'");
        assert_eq!(quoted("plain"), "'plain'");
    }
}
