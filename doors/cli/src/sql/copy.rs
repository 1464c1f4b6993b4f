//! Files of COPY. They get their names when the statement has ended: DataFusion ends a file as if it had all rows when a
//! query fails.

use std::path::{Path, PathBuf};
use std::{fs, io};

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::LogicalPlan;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::signals::{OnStop, on_stop};
use tempfile::TempDir;
use url::Url;

use super::session::Stop;

/// Files that a statement writes before they get their names. Dropping this removes them.
#[derive(Debug)]
pub struct Unnamed {
    written: PathBuf,
    /// That of `written`, with a slash at the end if it is a folder.
    url: Url,
    target: PathBuf,
    _removed: OnStop,
    _folder: TempDir,
}

impl Unnamed {
    /// Lets a COPY write to a folder of its own, on the file system of its target. None if the plan has no COPY, or its target
    /// is no local file.
    ///
    /// # Errors
    /// Usage if the files exist, or their folder does not, and `force` does not allow it; Environment if nothing can be
    /// written there.
    pub fn of(plan: LogicalPlan, force: bool) -> Result<(LogicalPlan, Option<Self>), Stop> {
        let mut unnamed = Ok(None);
        if matches!(plan, LogicalPlan::Explain(_)) {
            return Ok((plan, None));
        }
        let plan = plan.transform_down(|node| {
            let LogicalPlan::Copy(mut copy) = node else {
                return Ok(Transformed::no(node));
            };
            unnamed = Self::of_target(&copy.output_url, force);
            if let Ok(Some(unnamed)) = &unnamed {
                copy.output_url = unnamed.url.to_string();
            }
            Ok(Transformed::yes(LogicalPlan::Copy(copy)))
        })?;
        Ok((plan.data, unnamed?))
    }

    fn of_target(named: &str, force: bool) -> Result<Option<Self>, Failure> {
        let Some(target) = local(named) else {
            return Ok(None);
        };
        if !force {
            refuse_existing(named, &target)?;
        }
        let refused = |e: io::Error| Failure::of_path(Path::new(named), &e);
        let is_folder = target.is_dir() || named.ends_with('/');
        // A folder may be the root of another file system.
        let beside = match target.is_dir() {
            true => target.as_path(),
            false => target.parent().unwrap_or(Path::new("/")),
        };
        let beside = std::path::absolute(Path::new(".").join(beside)).map_err(refused)?;
        fs::create_dir_all(&beside).map_err(refused)?;
        let folder = tempfile::Builder::new()
            .prefix(".rockmill-")
            .tempdir_in(&beside);
        let folder = folder.map_err(refused)?;
        let written = folder
            .path()
            .join(target.file_name().unwrap_or("rows".as_ref()));
        let url = match is_folder {
            true => Url::from_directory_path(&written),
            false => Url::from_file_path(&written),
        };
        let path = folder.path().to_owned();
        Ok(Some(Self {
            written,
            url: url.expect("an absolute path"),
            target,
            _removed: on_stop(move || drop(fs::remove_dir_all(&path))),
            _folder: folder,
        }))
    }

    /// Gives the files their names.
    ///
    /// # Errors
    /// Environment, with the path.
    pub fn named(self) -> Result<(), Failure> {
        move_to(&self.written, &self.target)
    }
}

/// Moves a file, or the files of a folder to one that may have others.
fn move_to(written: &Path, target: &Path) -> Result<(), Failure> {
    let refused = |e: io::Error| Failure::of_path(target, &e);
    if !(written.is_dir() && target.is_dir()) {
        return match fs::rename(written, target) {
            // A query without rows may write no file.
            Err(e) if e.kind() == io::ErrorKind::NotFound && !written.exists() => Ok(()),
            renamed => renamed.map_err(refused),
        };
    }
    for entry in fs::read_dir(written).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        move_to(&entry.path(), &target.join(entry.file_name()))?;
    }
    Ok(())
}

/// The path that a target names. None if it is a URL of something else.
fn local(target: &str) -> Option<PathBuf> {
    match Url::parse(target) {
        Ok(url) if !target.starts_with('/') => url.to_file_path().ok(),
        _ => Some(PathBuf::from(target)),
    }
}

/// Refuses to write over a file, or to make the folder for it.
fn refuse_existing(named: &str, path: &Path) -> Result<(), Failure> {
    let folder = path.parent();
    if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty())
        && !folder.is_dir()
    {
        let what = format!(
            "{named}: there is no folder {}, and --force makes it; or name another one",
            folder.display()
        );
        return Err(Failure::Usage(what));
    }
    let what = if path.is_dir() {
        let mut entries = fs::read_dir(path).into_iter().flatten();
        match entries.next() {
            Some(_) => "has files, and --force adds others",
            None => return Ok(()),
        }
    } else if path.exists() {
        "exists, and --force replaces it"
    } else {
        return Ok(());
    };
    let what = format!("{named} {what}; or name another one");
    Err(Failure::Usage(what))
}
