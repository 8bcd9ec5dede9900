//! Patterns in the manner of `.gitignore`, one meaning wherever a command takes a glob.

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// A pattern is no pattern.
#[derive(Debug, thiserror::Error)]
#[error("the pattern {pattern:?} is wrong")]
pub struct PatternError {
    /// As given.
    pub pattern: String,
    /// What is wrong.
    pub source: ignore::Error,
}

/// A list of patterns over relative paths: `*.tmp` matches at any depth, `/a` only at the top, `a/` only folders, `!a`
/// takes back; the last that matches decides.
#[derive(Debug, Clone)]
pub struct Patterns(Gitignore);

impl Patterns {
    /// Compiles patterns.
    ///
    /// # Errors
    /// [`PatternError`] names the one that is wrong.
    pub fn new(patterns: &[String]) -> Result<Self, PatternError> {
        let mut builder = GitignoreBuilder::new("");
        for pattern in patterns {
            let wrong = |source| PatternError { pattern: pattern.clone(), source };
            builder.add_line(None, pattern).map_err(wrong)?;
        }
        let wrong = |source| PatternError { pattern: patterns.join(" "), source };
        Ok(Self(builder.build().map_err(wrong)?))
    }

    /// Whether there are no patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the path itself matches.
    #[must_use]
    pub fn matches(&self, path: &Path, is_dir: bool) -> bool {
        self.0.matched(path, is_dir).is_ignore()
    }

    /// Whether the path or a folder above it matches.
    #[must_use]
    pub fn covers(&self, path: &Path, is_dir: bool) -> bool {
        !self.is_empty() && self.0.matched_path_or_any_parents(path, is_dir).is_ignore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_gitignore_does() {
        let patterns =
            Patterns::new(&["*.tmp".to_owned(), "/top".to_owned(), "cache/".to_owned(), "!keep.tmp".to_owned()])
                .unwrap();
        let covers = |path: &str, is_dir| patterns.covers(Path::new(path), is_dir);
        assert!(
            covers("a/b/x.tmp", false) && covers("top", false) && covers("a/cache", true) && covers("a/cache/x", false)
        );
        assert!(
            !covers("a/top", false) && !covers("cache", false) && !covers("a/keep.tmp", false) && !covers("x", false)
        );
        assert!(Patterns::new(&["{a".to_owned()]).is_err());
    }
}
