//! The one error enum: what went wrong, and where (path, line, byte offset).

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Anything that the core refuses. `Display` gives one line for people.
#[derive(Debug)]
pub enum Error {
    /// A file-system call failed.
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A string that may not become a file name (contract, section 2).
    RolloutId { id: String },
    /// Text that is not the JSON that it should be. `line` counts from 1, `offset` is
    /// the byte within the text (or the line) where the reader stopped.
    Json {
        reason: Cow<'static, str>,
        path: Option<PathBuf>,
        line: Option<u64>,
        offset: usize,
    },
    /// A value of the wrong shape; `key` names where it was.
    Shape {
        key: Cow<'static, str>,
        reason: Cow<'static, str>,
    },
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    #[cold]
    pub fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            action,
            path: path.to_path_buf(),
            source: source.into(),
        }
    }

    #[cold]
    pub fn json(reason: impl Into<Cow<'static, str>>, offset: usize) -> Self {
        Self::Json {
            reason: reason.into(),
            path: None,
            line: None,
            offset,
        }
    }

    /// Says in which file and line a JSON error was met.
    #[must_use]
    pub fn at(self, file: &Path, number: u64) -> Self {
        match self {
            Self::Json { reason, offset, .. } => Self::Json {
                reason,
                path: Some(file.to_path_buf()),
                line: Some(number),
                offset,
            },
            other => other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io {
                action,
                path,
                source,
            } => {
                write!(f, "cannot {action} {}: {source}", path.display())
            }
            Self::RolloutId { id } => write!(
                f,
                "invalid rollout id {id:?}: expected [A-Za-z0-9][A-Za-z0-9._-]* of at most 200 characters"
            ),
            Self::Json {
                reason,
                path,
                line,
                offset,
            } => {
                if let Some(path) = path {
                    write!(f, "{}: ", path.display())?;
                }
                if let Some(line) = line {
                    write!(f, "line {line}: ")?;
                }
                write!(f, "{reason} at byte {offset}")
            }
            Self::Shape { key, reason } => write!(f, "{key}: {reason}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
