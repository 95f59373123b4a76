//! The report as Markdown.

use holdfast_history::Overview;

use super::figures::Errors;
use super::words;

pub(super) fn markdown(overview: &Overview, errors: &[Errors]) -> String {
    let mut text =
        format!("# Holdfast: what was predicted, and what it was\n\n{}\n", words::summary(errors));
    section(&mut text, "Errors", &words::ERROR_HEADER, errors, words::error_row);
    section(&mut text, "Comparisons", &words::IMPACT_HEADER, &overview.impacts, words::impact_row);
    section(&mut text, "Trends", &words::TREND_HEADER, &overview.trends, words::trend_row);
    section(
        &mut text,
        "Refinements",
        &words::REFINEMENT_HEADER,
        &overview.refinements,
        words::refinement_row,
    );
    section(&mut text, "Settings", &words::SETTING_HEADER, &overview.settings, words::setting_row);
    section(
        &mut text,
        "Inferences",
        &words::INFERENCE_HEADER,
        &overview.inferences,
        words::inference_row,
    );
    text
}

/// A table under a heading; nothing if it has no rows.
fn section<T>(
    text: &mut String,
    title: &str,
    header: &[&str],
    items: &[T],
    row: impl Fn(&T) -> Vec<String>,
) {
    if items.is_empty() {
        return;
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let header: Vec<String> = header.iter().map(|title| (*title).to_owned()).collect();
    let rule = vec!["---".to_owned(); header.len()];
    text.push_str(&format!("\n## {title}\n\n{}{}", line(header), line(rule)));
    for item in items {
        let cells = row(item).iter().map(|cell| escape(cell)).collect();
        text.push_str(&line(cells));
    }
}

/// A text that means itself in a cell: a bar or a line break would end it, and HTML is HTML here too.
fn escape(text: &str) -> String {
    let text = text.replace('|', "\\|").replace(['\n', '\r'], " ");
    text.replace('<', "&lt;").replace('>', "&gt;")
}
