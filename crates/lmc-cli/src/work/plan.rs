//! Selects the files to work on, and names their outputs.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lmc::Base;

use crate::fs::guard::{Guard, Role};
use crate::fs::input::{STDIN, Source};
use crate::fs::links;
use crate::fs::names::{CHECKPOINT_SUFFIXES, SUFFIX, is_dash};
use crate::fs::output::{Origin, Output, Target, create_directories, is_stdout};
use crate::fs::walk::{self, Entry, Kind, Other};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::ui::messages::Ui;
use crate::work::args::Files;
use crate::work::bases::Bases;
use crate::work::external::with_data;
use crate::work::files::is_hidden;
use crate::work::shards::{shards, with_suffix};

/// An input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Stdin,
    File(PathBuf),
}

impl Input {
    /// The input's name in messages.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Input::Stdin => Path::new(STDIN),
            Input::File(path) => path,
        }
    }
}

/// One file to work on.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) input: Input,
    pub(crate) output: Target,
    /// A directory to create before the output is opened.
    pub(crate) directory: Option<PathBuf>,
}

impl Job {
    /// The input's name in messages.
    pub(crate) fn path(&self) -> &Path {
        self.input.path()
    }

    /// Opens the output; creates its directory if needed.
    pub(crate) fn create_output(&self, overwrite: bool, origin: Origin<'_>, guard: &Guard) -> Result<Output> {
        if let Some(dir) = &self.directory {
            create_directories(dir)?;
        }
        Output::create(&self.output, overwrite, origin, guard)
    }
}

/// How outputs are named, and which files of a directory are selected.
pub(crate) trait Naming {
    /// The output's name for an input; `None` if it cannot be derived.
    fn output_name(&self, name: &OsStr) -> Option<OsString>;
    /// The input for a file of a checkpoint, in its index's directory.
    fn input_beside(&self, index: &Path, name: &str) -> PathBuf;
    /// Whether a file found in a directory is selected.
    fn picks(&self, path: &Path) -> bool;
    /// The selected files of a directory, its `root`, with those of its `others` that they need, in the order of work.
    fn with_needed(&self, found: Vec<PathBuf>, _others: &[PathBuf], _root: &Path) -> Vec<PathBuf> {
        found
    }
    /// What a directory lacks if no file in it is.
    fn lacks(&self) -> &'static str;
}

/// `name` → `name.lmc`.
pub(crate) struct AddSuffix {
    /// Take every file of a directory, not only checkpoints.
    pub(crate) all: bool,
}

impl Naming for AddSuffix {
    fn output_name(&self, name: &OsStr) -> Option<OsString> {
        let mut name = name.to_owned();
        name.push(".");
        name.push(SUFFIX);
        Some(name)
    }

    fn input_beside(&self, index: &Path, name: &str) -> PathBuf {
        index.with_file_name(name)
    }

    fn picks(&self, path: &Path) -> bool {
        let has = |suffix: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(suffix));
        !has(SUFFIX) && (self.all || CHECKPOINT_SUFFIXES.iter().any(|s| has(s)))
    }

    fn with_needed(&self, found: Vec<PathBuf>, others: &[PathBuf], root: &Path) -> Vec<PathBuf> {
        with_models(with_data(found, others), others, root)
    }

    fn lacks(&self) -> &'static str {
        if self.all {
            "has no regular file"
        } else {
            "has no regular file with the suffix of a checkpoint, or with tensors: lmc compress --all takes others, too; links to directories are not followed"
        }
    }
}

/// `name.lmc` → `name`.
pub(crate) struct RemoveSuffix;

impl Naming for RemoveSuffix {
    fn output_name(&self, name: &OsStr) -> Option<OsString> {
        let path = Path::new(name);
        let stem = path.file_stem().filter(|_| path.extension() == Some(OsStr::new(SUFFIX)))?;
        Some(stem.to_owned())
    }

    fn input_beside(&self, index: &Path, name: &str) -> PathBuf {
        with_suffix(index, name)
    }

    fn picks(&self, path: &Path) -> bool {
        path.extension() == Some(OsStr::new(SUFFIX))
    }

    fn lacks(&self) -> &'static str {
        "has no regular file whose name ends in .lmc"
    }
}

/// Directories without any file for the command.
#[derive(Default)]
pub(crate) struct WithoutFiles(Vec<Failure>);

impl WithoutFiles {
    /// Says which they are. If there are no files from elsewhere, that is a failure: `nothing` was found.
    pub(crate) fn report(mut self, nothing: bool, ui: &Ui) -> Result {
        let last = self.0.pop_if(|_| nothing);
        self.0.iter().for_each(|lacking| ui.warn(lacking));
        last.map_or(Ok(()), Err)
    }
}

/// What was found in directories beside files for the command.
#[derive(Default)]
pub(crate) struct Others {
    pub(crate) lacking: WithoutFiles,
    /// Symbolic links to files that are inputs themselves.
    links: Vec<Link>,
}

/// A symbolic link, and the file that it leads to.
pub(crate) type Link = (PathBuf, Metadata);

/// The inputs that a list of paths names: directories are walked if `recursive`, and the index of a checkpoint names
/// its files.
pub(crate) fn inputs(files: &[PathBuf], recursive: bool, naming: &dyn Naming, ui: &Ui) -> Result<(Vec<Input>, Others)> {
    let (mut inputs, mut others) = (Vec::new(), Others::default());
    for path in files {
        if is_dash(path) {
            inputs.push(Input::Stdin);
        } else if recursive && path.is_dir() {
            inputs.extend(walk(path, naming, &mut others, ui).into_iter().map(Input::File));
        } else if let Some(shards) = shards(path)? {
            inputs.extend(shards.iter().map(|name| Input::File(naming.input_beside(path, name))));
        } else {
            inputs.push(Input::File(path.clone()));
        }
    }
    if files.is_empty() {
        inputs.push(Input::Stdin);
    }
    Ok((inputs, others))
}

/// Plans the jobs of a command that writes files. Links that were found to their inputs are returned, too.
pub(crate) fn plan(args: &Files, naming: &dyn Naming, one_stream: bool, ui: &Ui) -> Result<(Vec<Job>, Vec<Link>)> {
    let stdin = args.files.iter().filter(|f| is_dash(f)).count();
    if stdin > 1 {
        return Err(Failure::Usage("standard input can be read only once: give - once".to_owned()));
    }
    let to_stdout = args.stdout || args.output.as_deref().is_some_and(is_dash);
    if to_stdout && args.rm {
        return Err(Failure::Usage("--rm needs outputs that are files: leave out --rm".to_owned()));
    }
    if let Some(mirror) = args.output.as_deref().filter(|_| !to_stdout)
        && args.recursive
        && let [dir] = args.files.as_slice()
        && dir.is_dir()
    {
        let mut others = Others::default();
        let files = walk(dir, naming, &mut others, ui);
        others.lacking.report(files.is_empty(), ui)?;
        let jobs = files.into_iter().map(|file| mirrored(dir, mirror, file, naming)).collect();
        return Ok((jobs, others.links));
    }
    let (inputs, Others { lacking, links }) = inputs(&args.files, args.recursive, naming, ui)?;
    lacking.report(inputs.is_empty(), ui)?;
    if to_stdout && inputs.len() > 1 && one_stream {
        return Err(Failure::Usage(
            "several compressed files cannot be separated in one stream: leave out -c, or give one file".to_owned(),
        ));
    }
    // A directory may be one input, or none.
    let given = inputs.len().max(args.files.len());
    if args.output.is_some() && !to_stdout && given > 1 {
        return Err(Failure::Usage(format!(
            "-o names one file, but there are {given} inputs: give one, or -r and the directory that -o mirrors"
        )));
    }
    let mut jobs = Vec::new();
    for input in inputs {
        let output = match (&input, &args.output) {
            _ if to_stdout => Target::Stdout,
            (_, Some(path)) => Target::File(path.clone()),
            (Input::Stdin, None) => Target::Stdout,
            (Input::File(path), None) => {
                let Some(name) = path.file_name().and_then(|name| naming.output_name(name)) else {
                    // An unreadable input fails later, with its own reason.
                    let refused = Source::open(path).err();
                    ui.fail(&refused.unwrap_or_else(|| no_name(path)));
                    continue;
                };
                Target::File(path.with_file_name(name))
            }
        };
        jobs.push(Job { input, output, directory: None });
    }
    let shown = |job: &Job| match &job.output {
        Target::Stdout => true,
        Target::File(path) => is_stdout(path),
        Target::Nowhere => false,
    };
    if args.json && jobs.iter().any(shown) {
        return Err(Failure::Usage(
            "both the output and --json would go to standard output: name a file with -o".to_owned(),
        ));
    }
    refuse_repeats(&jobs)?;
    Ok((jobs, links))
}

/// The files that were `found`, and those of the `others` without a suffix that have tensors. Blobs of a cache, which links lead to that were
/// found, are left to these, and what is hidden to those who hid it, such as git.
fn with_models(mut found: Vec<PathBuf>, others: &[PathBuf], root: &Path) -> Vec<PathBuf> {
    let id = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let mut seen: HashSet<_> = found.iter().map(|path| id(path)).collect();
    // A suffix says what a file is, and there may be very many.
    let unnamed = others.iter().filter(|path| path.extension().is_none() && !is_hidden(path, root));
    let unnamed: Vec<_> = unnamed.filter(|path| seen.insert(id(path)) && has_tensors(path)).cloned().collect();
    if !unnamed.is_empty() {
        found.extend(unnamed);
        found.sort();
    }
    found
}

fn has_tensors(path: &Path) -> bool {
    let base = Source::open(path).ok().and_then(|source| Base::new(source).ok());
    base.is_some_and(|base| base.segments().iter().any(|segment| segment.name.is_some()))
}

fn no_name(path: &Path) -> Failure {
    Failure::at(path, format_args!("has no name ending in .{SUFFIX}: name the output with -o, if lmc made it"))
}

fn mirrored(dir: &Path, mirror: &Path, file: PathBuf, naming: &dyn Naming) -> Job {
    let inside = file.strip_prefix(dir).unwrap_or(&file);
    let name = inside.file_name().and_then(|name| naming.output_name(name)).unwrap_or_default();
    let output = mirror.join(inside).with_file_name(name);
    Job { directory: output.parent().map(Path::to_owned), output: Target::File(output), input: Input::File(file) }
}

/// Fails if a file is given twice: its output would be written twice, and with --rm the second time nothing would be left to read.
fn refuse_repeats(jobs: &[Job]) -> Result {
    let mut seen = HashSet::new();
    let to_files = jobs.iter().filter(|job| matches!(job.output, Target::File(_)));
    match to_files.map(Job::path).find(|path| !seen.insert(*path)) {
        Some(path) => Err(Failure::usage(path, "is given twice: give it once")),
        None => Ok(()),
    }
}

/// Registers the files that these jobs must not remove or replace. A violation is refused before the run begins.
pub(crate) fn guard(jobs: &[Job], links: Vec<Link>, bases: &Bases, args: &Files) -> Result<Guard> {
    let guard = bases.guard();
    links.iter().for_each(|(link, target)| guard.keep_link(link, target));
    for job in jobs {
        let Input::File(path) = &job.input else { continue };
        let compressed = links::compressed_since(path);
        // A missing input fails when its turn comes.
        let Ok(metadata) = std::fs::metadata(compressed.as_ref().unwrap_or(path)) else { continue };
        if args.rm {
            guard.check_remove(path, &metadata)?;
        }
        guard.keep(Role::Input, path, &metadata);
    }
    for job in jobs {
        // Without -f nothing is replaced.
        if let Target::File(path) = &job.output
            && args.force
        {
            guard.check_replace(path)?;
        }
    }
    Ok(guard)
}

/// The regular files under a directory that `naming` selects, in order of names, and links to files that are not there: the caches of models
/// consist of links. It is `lacking` if there are none, and none that is compressed.
fn walk(dir: &Path, naming: &dyn Naming, others: &mut Others, ui: &Ui) -> Vec<PathBuf> {
    let (mut found, mut unpicked, mut failed) = (Vec::new(), Vec::new(), false);
    // Links to regular files, with these files.
    let mut links = HashMap::new();
    // The stack holds directories and files. The last name is pushed first, so that the first is popped first.
    let mut stack = vec![(dir.to_owned(), true)];
    while let Some((path, is_dir)) = stack.pop() {
        if !is_dir {
            found.push(path);
            continue;
        }
        let entries = match walk::entries(&path) {
            Ok(entries) => entries,
            Err(failure) => {
                ui.fail(&failure);
                failed = true;
                continue;
            }
        };
        for Entry { path, kind, .. } in entries.into_iter().rev() {
            let is_picked = naming.picks(&path);
            match kind {
                Kind::Directory => {
                    stack.push((path, true));
                    continue;
                }
                Kind::File => {}
                Kind::Link(target) => _ = links.insert(path.clone(), target),
                Kind::Other(why) => {
                    let text = format!("{}: left alone, {why}", Name::path(&path));
                    // Here a file was to be.
                    if is_picked && why == Other::LinkToNothing {
                        ui.warn(text)
                    } else {
                        ui.detail(text)
                    }
                    continue;
                }
            }
            if is_picked { stack.push((path, false)) } else { unpicked.push(path) }
        }
    }
    let mut found = naming.with_needed(found, &unpicked, dir);
    let taken: HashSet<&PathBuf> = found.iter().collect();
    for path in unpicked.iter().filter(|path| !taken.contains(path)) {
        ui.detail(format_args!("{}: left alone, not picked by -r", Name::path(path)));
        // By another name, as `latest` of `step-300.pt`.
        others.links.extend(links.remove(path).map(|target| (path.clone(), target)));
    }
    let compressed = unpicked.iter().any(|path| path.extension() == Some(OsStr::new(SUFFIX)));
    if found.is_empty() && !compressed && !failed {
        others.lacking.0.push(Failure::at(dir, naming.lacks()));
    }
    if !links.is_empty() {
        let id = |m: &Metadata| (m.dev(), m.ino());
        let files = found.iter().filter(|path| !links.contains_key(*path));
        let files: HashSet<_> = files.filter_map(|path| std::fs::metadata(path).ok()).map(|m| id(&m)).collect();
        found.retain(|path| match links.remove(path) {
            Some(target) if files.contains(&id(&target)) => {
                ui.detail(format_args!("{}: left alone, a link to another file of these", Name::path(path)));
                others.links.push((path.clone(), target));
                false
            }
            _ => true,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_go_on_and_off() {
        let add = AddSuffix { all: false };
        assert_eq!(add.output_name(OsStr::new("a.b")), Some("a.b.lmc".into()));
        assert_eq!(RemoveSuffix.output_name(OsStr::new("a.b.lmc")), Some("a.b".into()));
        for bad in ["a", "a.LMC", ".lmc", "a.lmcx", "lmc"] {
            assert_eq!(RemoveSuffix.output_name(OsStr::new(bad)), None, "{bad}");
        }
    }

    #[test]
    fn directories_are_searched_for_checkpoints() {
        let some = AddSuffix { all: false };
        let all = AddSuffix { all: true };
        assert!(some.picks(Path::new("d/model.safetensors")) && some.picks(Path::new("X.PT")));
        assert!(!some.picks(Path::new("config.json")) && all.picks(Path::new("config.json")));
        assert!(!some.picks(Path::new("a.pt.lmc")) && !all.picks(Path::new("a.pt.LMC")));
    }
}
