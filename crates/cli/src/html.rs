//! Pages that need nothing else: one file with its style inside.

/// What all pages look like.
const STYLE: &str = include_str!("page.css");

/// A whole page. `body` is HTML, the title is not.
pub(crate) fn page(title: &str, more_style: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{more_style}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

/// Names and what they stand for. Both are text.
pub(crate) fn list(facts: &[(&str, String)]) -> String {
    let rows = facts
        .iter()
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value)));
    format!("<dl>\n{}</dl>\n", rows.collect::<String>())
}

/// A text that means itself in HTML.
pub(crate) fn escape(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('"', "&quot;")
}
