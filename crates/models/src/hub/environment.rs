//! The endpoint and token where the Hugging Face tools keep them, so that people set them up once.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::error::HubError;

/// What proves to a hub who asks. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Checks a token. `source_name` says in an error where it came from.
    pub fn new(text: &str, source_name: &str) -> Result<Token, HubError> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(HubError::BadToken { source_name: source_name.to_owned() });
        }
        Ok(Token(text.to_owned()))
    }

    /// The header's value.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The hub that the environment asks for.
pub(super) fn endpoint(get: impl Fn(&str) -> Option<OsString>) -> Result<String, HubError> {
    match set(&get, "HF_ENDPOINT") {
        None => Ok(super::PUBLIC_ENDPOINT.to_owned()),
        Some(endpoint) => endpoint.into_string().map_err(|endpoint| HubError::BadEndpoint {
            endpoint: endpoint.to_string_lossy().into_owned(),
            reason: "it is not text",
        }),
    }
}

/// `HF_TOKEN`, or what is in the file that logging in wrote.
pub(super) fn token(get: impl Fn(&str) -> Option<OsString>) -> Result<Option<Token>, HubError> {
    if let Some(token) = set(&get, "HF_TOKEN") {
        return Token::new(&token.to_string_lossy(), "HF_TOKEN").map(Some);
    }
    let Some(path) = token_file(&get) else { return Ok(None) };
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Token::new(&text, &path.display().to_string()).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HubError::file(&path)(error)),
    }
}

fn token_file(get: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(path) = set(get, "HF_TOKEN_PATH") {
        return Some(path.into());
    }
    let hugging_face = set(get, "HF_HOME").map(PathBuf::from).or_else(|| {
        let cache = set(get, "XDG_CACHE_HOME").map(PathBuf::from);
        let home = || set(get, if cfg!(windows) { "USERPROFILE" } else { "HOME" });
        Some(cache.or_else(|| Some(PathBuf::from(home()?).join(".cache")))?.join("huggingface"))
    });
    Some(hugging_face?.join("token"))
}

/// A variable that is set to nothing counts as not set.
fn set(get: &impl Fn(&str) -> Option<OsString>, name: &str) -> Option<OsString> {
    get(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&'static str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| (*name, OsString::from(value))).collect();
        move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn endpoint_is_the_public_hub_unless_said_otherwise() {
        assert_eq!(endpoint(variables(&[])).unwrap(), crate::hub::PUBLIC_ENDPOINT);
        assert_eq!(
            endpoint(variables(&[("HF_ENDPOINT", "")])).unwrap(),
            crate::hub::PUBLIC_ENDPOINT
        );
        assert_eq!(endpoint(variables(&[("HF_ENDPOINT", "http://x")])).unwrap(), "http://x");
    }

    #[test]
    fn token_is_taken_from_the_variable_before_the_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "from_file\n").unwrap();
        let home = folder.path().to_str().unwrap();
        let found = |pairs: &[(&'static str, &str)]| token(variables(pairs)).unwrap().unwrap().0;
        assert_eq!(found(&[("HF_TOKEN", " from_variable "), ("HF_HOME", home)]), "from_variable");
        assert_eq!(found(&[("HF_HOME", home)]), "from_file");
        let path = format!("{home}/token");
        assert_eq!(found(&[("HF_TOKEN_PATH", &path), ("HF_HOME", "/nowhere")]), "from_file");
    }

    #[test]
    fn no_token_is_not_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        assert_eq!(token(variables(&[("HF_HOME", home)])).unwrap(), None);
        assert_eq!(token(variables(&[("HF_TOKEN", "")])).unwrap(), None);
    }

    #[test]
    fn bad_token_is_named_but_not_shown() {
        let error = token(variables(&[("HF_TOKEN", "secret\nX-Header: 1")])).unwrap_err();
        assert!(error.to_string().contains("HF_TOKEN"));
        assert!(!error.to_string().contains("secret"));
        assert_eq!(format!("{:?}", Token::new("secret", "a test").unwrap()), "Token(…)");
    }
}
