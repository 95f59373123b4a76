//! What a repository holds at one commit.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, StatusCode, header};

use super::address::{Address, encode};
use super::content::ContentId;
use super::error::HubError;
use super::repository::Repository;
use super::retry::Failures;
use super::transport::bad_answer;
use super::{Hub, download};

/// A hub sends a thousand files a page. A repository with more pages than this is not a model.
const PAGE_LIMIT: usize = 100;

/// The files of a repository at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The repository.
    pub repository: Repository,
    /// The commit that the revision meant when it was listed. Downloads are of this commit, however
    /// the revision moves on.
    pub commit: String,
    /// Its files, in the hub's order. Every path stays inside a folder.
    pub files: Vec<RemoteFile>,
}

/// A file of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// Its path in the repository, with `/` between folders.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// What its bytes hash to.
    pub content: ContentId,
}

impl Hub {
    /// Lists a repository at a revision: a branch, a tag or a commit.
    pub fn list(&self, repository: &Repository, revision: &str) -> Result<Listing, HubError> {
        let what = format!("{repository} at {revision:?}");
        let models = format!("/api/models/{repository}");
        let address = self.address(&format!("{models}/revision/{}", encode(revision)))?;
        let page: Page<Revision> = self.page(&what, &address)?;
        let commit = page.content.sha;
        if !is_commit(&commit) {
            return Err(bad_answer(&what, &page.address, format!("no commit: {commit:?}")));
        }

        let mut files = Vec::new();
        let mut next = Some(self.address(&format!("{models}/tree/{commit}?recursive=true"))?);
        for _ in 0..PAGE_LIMIT {
            let Some(address) = next else {
                return Ok(Listing { repository: repository.clone(), commit, files });
            };
            let page: Page<Vec<Entry>> = self.page(&what, &address)?;
            for entry in page.content {
                if entry.kind == "file" {
                    files.push(entry.checked(repository, &what, &page.address)?);
                }
            }
            next = page.next;
        }
        let reason = format!("more than {PAGE_LIMIT} pages of files");
        Err(bad_answer(&what, self.transport.endpoint(), reason))
    }

    /// An address on this hub.
    pub(super) fn address(&self, path: &str) -> Result<Address, HubError> {
        let endpoint = self.transport.endpoint();
        endpoint.below(path).ok_or_else(|| HubError::BadEndpoint {
            endpoint: endpoint.to_string(),
            reason: "no address can be made with it",
        })
    }

    /// Gets a page of JSON, and asks again where that may help.
    fn page<T: DeserializeOwned>(
        &self,
        what: &str,
        address: &Address,
    ) -> Result<Page<T>, HubError> {
        let mut failures = Failures::none(&self.retry);
        loop {
            match self.page_once(what, address) {
                Err(error) if error.may_pass() => failures.bear(error)?,
                result => return result,
            }
        }
    }

    fn page_once<T: DeserializeOwned>(
        &self,
        what: &str,
        address: &Address,
    ) -> Result<Page<T>, HubError> {
        let mut answer = self.transport.get(what, address, &[], &[StatusCode::OK])?;
        let text = answer.text(what)?;
        let content = serde_json::from_slice(&text)
            .map_err(|error| bad_answer(what, &answer.address, error.to_string()))?;
        let next = next_page(answer.response.headers(), &answer.address);
        Ok(Page { content, address: answer.address, next })
    }
}

/// What an address said, and where it goes on.
struct Page<T> {
    content: T,
    address: Address,
    next: Option<Address>,
}

#[derive(Deserialize)]
struct Revision {
    sha: String,
}

/// A line of a listing as the hub sends it.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    oid: String,
    #[serde(default)]
    size: u64,
    lfs: Option<LargeFile>,
}

/// What stands behind the pointer that git itself holds.
#[derive(Deserialize)]
struct LargeFile {
    oid: String,
    size: u64,
}

impl Entry {
    fn checked(
        self,
        repository: &Repository,
        what: &str,
        address: &Address,
    ) -> Result<RemoteFile, HubError> {
        let path = self.path;
        if !is_inside(&path) {
            return Err(HubError::UnsafePath { repository: repository.to_string(), path });
        }
        let (content, size) = match &self.lfs {
            Some(large) => (large.oid.parse().ok().map(ContentId::Sha256), large.size),
            None => (ContentId::parse_git_blob(&self.oid), self.size),
        };
        let content = content
            .ok_or_else(|| bad_answer(what, address, format!("no hash of the file {path:?}")))?;
        Ok(RemoteFile { path, size, content })
    }
}

/// Whether this is a commit's hash, which goes into addresses as it is.
fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a path names a file in a folder that it is joined to, on every system.
fn is_inside(path: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.ends_with(['.', ' ']);
    path.len() <= 1024
        && path != download::LOCK
        && path.split('/').all(plain)
        && !path.contains(|letter: char| letter.is_control() || matches!(letter, '\\' | ':'))
}

/// The address after `rel="next"` in a `Link` header.
fn next_page(headers: &HeaderMap, page: &Address) -> Option<Address> {
    let links = headers.get_all(header::LINK).iter().filter_map(|value| value.to_str().ok());
    for mut links in links {
        while let Some((_, rest)) = links.split_once('<') {
            let (target, rest) = rest.split_once('>')?;
            let (parameters, rest) = rest
                .split_once('<')
                .map_or((rest, ""), |(parameters, _)| (parameters, &rest[parameters.len()..]));
            if parameters.contains("rel=\"next\"") || parameters.contains("rel=next") {
                return page.join(target);
            }
            links = rest;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_paths_that_stay_inside() {
        for good in
            ["config.json", "onnx/model.onnx", "1_Pooling/config.json", ".gitattributes", "a b"]
        {
            assert!(is_inside(good), "{good}");
        }
    }

    #[test]
    fn refuses_paths_that_lead_out() {
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../a",
            "a/../../b",
            "a/..",
            "./a",
            "a//b",
            "a/",
            "a\\b",
            "C:/a",
            "a\0b",
            "a\nb",
            "a./b",
            download::LOCK,
        ] {
            assert!(!is_inside(bad), "{bad:?}");
        }
    }

    #[test]
    fn finds_the_next_page_among_links() {
        let page = Address::of_endpoint("https://hub.example.org/api").unwrap();
        let next = |link: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::LINK, link.parse().unwrap());
            next_page(&headers, &page).map(|address| address.uri().to_string())
        };
        let expected = Some("https://hub.example.org/tree?cursor=x,y".to_owned());
        assert_eq!(next("<https://hub.example.org/tree?cursor=x,y>; rel=\"next\""), expected);
        assert_eq!(next("</first>; rel=\"first\", </tree?cursor=x,y>; rel=\"next\""), expected);
        assert_eq!(next("</first>; rel=\"first\""), None);
        assert_eq!(next("</broken; rel=\"next\""), None);
    }
}
