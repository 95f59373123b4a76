//! The page that a browser is started on: it goes on to the link at once.
//!
//! A command line can be read by every user of the machine, and the link holds a token. So the
//! browser is given the address of this file, which only its owner can read, and the file holds
//! the link.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::BrowserError;

/// The name of the page inside a profile.
pub(crate) const FILE_NAME: &str = "holdfast-start.html";

/// Writes the page for `link` into a profile folder and returns its address.
pub(crate) fn write(profile: &Path, link: &str) -> Result<String, BrowserError> {
    let page = page(link)?;
    let path = profile.join(FILE_NAME);
    let written = write_private(&path, &page);
    written.map_err(|source| BrowserError::Profile { folder: profile.to_owned(), source })?;
    Ok(address(&path))
}

fn page(link: &str) -> Result<String, BrowserError> {
    let is_web = link.starts_with("http://") || link.starts_with("https://");
    let is_plain = !link.chars().any(|c| c.is_control() || c.is_whitespace());
    if !is_web || !is_plain {
        return Err(BrowserError::BadLink);
    }
    // A JSON string is a JavaScript string; without `<` it cannot end the script element.
    let link = serde_json::Value::from(link).to_string().replace('<', "\\u003c");
    Ok(format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Holdfast</title>\
         <script>location.replace({link})</script>\n"
    ))
}

fn write_private(path: &PathBuf, page: &str) -> io::Result<()> {
    // A kept profile may have the page of an earlier start.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(page.as_bytes())
}

/// A path as a `file:` address; what is not plain is percent-encoded byte by byte.
fn address(path: &Path) -> String {
    let mut address = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => address.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => address.push(char::from(*byte)),
            byte => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_its_owner_can_read_the_page_and_the_address_has_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let address = write(folder.path(), "http://127.0.0.1:1/join#token=secret").unwrap();
        let path = folder.path().join(FILE_NAME);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(&path).unwrap().contains("token=secret"));
        assert!(!address.contains("secret"), "{address}");
    }

    #[test]
    fn a_second_start_replaces_the_page() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "http://127.0.0.1:1/first").unwrap();
        write(folder.path(), "http://127.0.0.1:1/second").unwrap();
        let page = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
        assert!(page.contains("second") && !page.contains("first"), "{page}");
    }

    #[test]
    fn a_link_cannot_break_out_of_the_script() {
        let page = page("http://127.0.0.1:1/\"</script><script>alert(1)//").unwrap();
        assert_eq!(page.matches("</script>").count(), 1, "{page}");
        assert!(page.contains("\\\"\\u003c/script>"), "{page}");
    }

    #[test]
    fn only_web_links_are_taken() {
        for link in ["file:///etc/passwd", "javascript:alert(1)", "--flag", "", "http://a b"] {
            assert!(matches!(page(link), Err(BrowserError::BadLink)), "{link}");
        }
    }

    #[test]
    fn unusual_paths_become_valid_addresses() {
        assert_eq!(address(Path::new("/a b/ü#?.html")), "file:///a%20b/%C3%BC%23%3F.html");
    }
}
