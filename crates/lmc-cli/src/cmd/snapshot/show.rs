//! `lmc snapshot show`.

use clap::Args;
use serde_json::json;

use super::list;
use super::place::{Place, Which};
use crate::cmd::list::display_name;
use crate::ui::failure::Result;
use crate::ui::format::{Name, bytes, percent};
use crate::ui::messages::Ui;
use crate::ui::table::Table;
use crate::ui::time::time;

/// Show the contents of a snapshot: its files, and with -v their tensors.
#[derive(Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    which: Which,

    /// Print a JSON object, tensors included.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Shows a snapshot.
pub(super) fn run(args: &ShowArgs, ui: &Ui) -> Result {
    let failure = |e| args.place.failure(&e);
    let store = args.place.open()?;
    let s = args.which.find(&args.place, &store, ui)?;
    let tags = args.place.tags(&store, ui)?;
    let reader = store.open_snapshot(&s).map_err(failure)?;
    if args.json {
        let segment = |t: &lmc::Segment| {
            json!({
                "name": t.name.as_deref(),
                "dtype": t.dtype.as_ref().map(lmc::Dtype::name),
                "shape": &t.shape[..],
                "offset": t.offset,
                "size": t.len,
            })
        };
        let file = |f: &lmc_store::FileInfo| {
            let segments: Vec<_> = f.segments.iter().map(segment).collect();
            json!({ "name": f.name, "size": f.len, "layout": f.layout, "segments": segments })
        };
        let mut object = list::to_json(&s, &tags);
        object["files"] = reader.files().iter().map(file).collect();
        return ui.json(&object);
    }
    let mut text = format!(
        "step {} : {} => {} ({}), {} UTC\nid {}\n",
        s.step,
        bytes(s.raw_size),
        bytes(s.new_size),
        percent(s.new_size, s.raw_size),
        time(s.time),
        s.id
    );
    if let names @ [_, ..] = &list::names(&s, &tags)[..] {
        text += &format!("tags {}\n", names.join(" "));
    }
    text += &list::weights_only(&s).map_or_else(String::new, |what| what + "\n");
    for (key, value) in &s.metadata {
        text += &format!("{} = {}\n", Name::text(key), Name::text(&value.to_string()));
    }
    let mut files = Table::new(&["file", "format", "size", "tensors"], &[2, 3]);
    let mut tensors = Table::new(&["file", "tensor", "dtype", "shape", "size"], &[4]);
    for f in reader.files() {
        let named = f.segments.iter().filter(|t| t.name.is_some());
        let (name, layout) = (Name::text(&f.name).to_string(), Name::text(&f.layout).to_string());
        files.add_row([name.clone(), layout, bytes(f.len), named.clone().count().to_string()]);
        for t in named {
            let dtype = t.dtype.as_ref().map_or("", lmc::Dtype::name).to_owned();
            tensors.add_row([name.clone(), display_name(t), dtype, format!("{:?}", t.shape), bytes(t.len)]);
        }
    }
    files.push_to(&mut text);
    if ui.verbose() {
        tensors.push_to(&mut text);
    }
    ui.print(&text)
}
