//! Since when versions have been as they are, by this machine's own clock: times of files may be those of another one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::versions::{Files, Identity, Version};

/// The versions that were looked at, as they were then.
#[derive(Default)]
pub(super) struct Settling(HashMap<PathBuf, Seen>);

struct Seen {
    identity: Identity,
    files: Files,
    first: Instant,
    /// When a look saw the first time that it is so.
    since: Instant,
    /// The reason that was said for waiting for it.
    said: Option<String>,
}

impl Settling {
    /// Looks at a version, unless it has `settled` already: for how long it has been as it is.
    pub(super) fn age(&mut self, version: &Version, settled: Option<Duration>) -> Duration {
        let now = Instant::now();
        if let Some(seen) = self.0.get(&version.path)
            && settled.is_some_and(|settled| now - seen.since >= settled)
        {
            return now - seen.since;
        }
        let (files, identity) = (version.files(), &version.identity);
        match self.0.get_mut(&version.path) {
            Some(seen) if seen.identity == *identity => {
                if seen.files != files {
                    (seen.files, seen.since) = (files, now);
                }
                now - seen.since
            }
            _ => {
                let seen = Seen { identity: identity.clone(), files, first: now, since: now, said: None };
                self.0.insert(version.path.clone(), seen);
                Duration::ZERO
            }
        }
    }

    /// For how long a version has been looked at.
    pub(super) fn watched(&self, version: &Version) -> Duration {
        self.0.get(&version.path).map_or(Duration::ZERO, |seen| seen.first.elapsed())
    }

    /// Whether a reason for waiting for a version that was looked at is to be said: once each.
    pub(super) fn is_news(&mut self, version: &Version, why: &str) -> bool {
        let Some(seen) = self.0.get_mut(&version.path) else { return false };
        let is_news = seen.said.as_deref() != Some(why);
        seen.said = Some(why.to_owned());
        is_news
    }

    /// Forgets all versions but these.
    pub(super) fn keep(&mut self, versions: &[Version]) {
        self.0.retain(|path, _| versions.iter().any(|v| v.path == *path));
    }
}
