//! Names of repositories: `owner/name`, or one word for the hub's oldest ones.

use std::fmt;
use std::str::FromStr;

use super::error::HubError;

/// The checked name of a repository on a hub. It is safe to use in addresses and as a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Repository(String);

impl Repository {
    /// The whole name, such as `Xenova/gte-small`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without its owner, such as `gte-small`.
    pub fn short_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl FromStr for Repository {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Repository, HubError> {
        let parts: Vec<&str> = text.split('/').collect();
        if parts.len() <= 2 && text.len() <= 200 && parts.iter().all(|part| is_name(part)) {
            Ok(Repository(text.to_owned()))
        } else {
            Err(HubError::BadRepository { name: text.to_owned() })
        }
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_name(part: &str) -> bool {
    part.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && !part.contains("..")
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_names_as_hubs_have_them() {
        for good in ["gpt2", "Xenova/gte-small", "a/b_c.d-1"] {
            assert_eq!(good.parse::<Repository>().unwrap().as_str(), good);
        }
        assert_eq!("Xenova/gte-small".parse::<Repository>().unwrap().short_name(), "gte-small");
    }

    #[test]
    fn refuses_what_could_lead_elsewhere() {
        for bad in [
            "", "/", "a/", "/a", "a/b/c", "..", "a/..", "../a", "a/b..c", ".a", "a b", "a?b",
            "a\\b", "é/b",
        ] {
            assert!(bad.parse::<Repository>().is_err(), "{bad}");
        }
    }
}
