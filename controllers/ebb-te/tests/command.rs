//! The command as a user meets it: output, exit codes, words.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebb-te")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn document(args: &[&str]) -> Value {
    let out = run(&[args, &["--format", "json"]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn tables_of_a_ready_made_lab() {
    let out =
        run(&["ebb-6x4", "--algorithm", "gold=cspf,silver=ksp-mcf:8,bronze=hprr", "--backup", "srlg-rba"]);
    let text = text(&out.stdout);
    assert!(out.status.success());
    for words in [
        "ebb-6x4 plane 1: 12 nodes, 46 directed links, 16 LSPs per pair and class, backups by srlg-rba",
        "silver  ksp-mcf:8",
        "Link utilisation: max ",
        "Bandwidth deficit over all single failures",
        "all with --paths 0 or --format json",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    assert!(text.lines().all(|l| l == l.trim_end()));
}

/// The document's shape as docs/ebb-te.md has it, and its sums.
#[test]
fn the_document_is_complete_and_adds_up() {
    let d = document(&["ebb-6x4", "--algorithm", "mcf", "--scale", "300"]);
    assert_eq!(d["format"], "ebb-te/1");
    assert_eq!(d["settings"]["classes"][0]["algorithm"], "mcf");
    let keys: Vec<&str> = d["report"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["classes", "deficit", "links", "nodes", "stretch", "utilisation"]);
    let bundles = d["bundles"].as_array().unwrap();
    assert_eq!(bundles.len(), 6 * 5 * 3);
    let mut used = std::collections::BTreeMap::new();
    for b in bundles {
        let lsps: u64 = b["paths"].as_array().unwrap().iter().map(|p| p["lsps"].as_u64().unwrap()).sum();
        assert_eq!(lsps, 16);
        for p in b["paths"].as_array().unwrap() {
            let hops = &p["primary"];
            let nodes = hops["nodes"].as_array().unwrap();
            assert_eq!((&nodes[0], nodes.last().unwrap()), (&b["from"], &b["to"]));
            for (node, interface) in nodes.iter().zip(hops["interfaces"].as_array().unwrap()) {
                let key = format!("{node} {interface}");
                *used.entry(key).or_insert(0) += b["lsp_bps"].as_u64().unwrap() * p["lsps"].as_u64().unwrap();
            }
        }
    }
    for l in d["links"].as_array().unwrap() {
        let sum: u64 = l["used_bps"].as_array().unwrap().iter().map(|u| u.as_u64().unwrap()).sum();
        let key = format!("{} {}", l["from"], l["interface"]);
        assert_eq!(sum, used.get(&key).copied().unwrap_or(0), "{key}");
    }
    for c in d["report"]["classes"].as_array().unwrap() {
        let (planned, least) = (c["planned"].as_f64().unwrap(), c["least_possible"].as_f64().unwrap());
        assert!(least <= planned * (1.0 + 1e-9) && planned <= least * 1.01, "{planned} {least}");
    }
    assert_eq!(document(&["ebb-6x4", "--algorithm", "mcf", "--scale", "300"]), d, "a second run differs");
}

#[test]
fn plots_are_complete_files() {
    let folder = tempfile::tempdir().unwrap();
    let plots = folder.path().join("new/plots");
    let out = run(&["ebb-6x4", "--scale", "500", "--backup", "fir", "--plots", plots.to_str().unwrap()]);
    assert!(out.status.success());
    for name in ["utilisation.svg", "stretch.svg", "deficit.svg"] {
        let svg = std::fs::read_to_string(plots.join(name)).unwrap();
        let xml = roxmltree::Document::parse(&svg).unwrap();
        let words: String = xml.descendants().filter_map(|n| n.text()).collect();
        assert!(words.contains("ebb-6x4 plane 1; gold cspf") && words.contains('%'), "{name}: {words}");
        // complete in itself: nothing is fetched
        assert!(!svg.replace("http://www.w3.org/2000/svg", "").contains("http"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}

#[test]
fn a_file_with_a_matrix_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let net = write(
        "net.txt",
        "?SNDlib native format; type: network; version: 1.0\nNODES ( a ( 0 0 ) b ( 1 1 ) c ( 2 0 ) )\n\
         LINKS ( 1 ( a b ) 1000 0 0 0 ( ) 2 ( b c ) 1000 0 0 0 ( ) 3 ( c a ) 1000 0 0 0 ( ) )\n",
    );
    let demands = write("m.csv", "a,b,gold,160M\nb,c,320M\n");
    let d = document(&[&net, "--matrix", &demands, "--share", "silver=100"]);
    assert_eq!(d["topology"], "net");
    let bps = |i: usize| d["report"]["classes"][i]["demand_bps"].as_u64().unwrap();
    assert_eq!((bps(0), bps(1), bps(2)), (160_000_000, 320_000_000, 0));
    let d = document(&[&net, "--gravity", "6G", "--reserved", "gold=50,100"]);
    assert_eq!(d["settings"]["classes"][1]["reserved_percent"], 100);
    assert_eq!(d["bundles"].as_array().unwrap().len(), 18);

    let refused = |args: &[&str], words: &str| {
        let out = run(args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "no {words:?} in\n{said}");
        assert!(out.stdout.is_empty());
    };
    refused(&[&net], "holds no demands\nhint: give --matrix FILE, or --gravity RATE");
    let stranger = write("s.csv", "a z 1G\n");
    refused(
        &[&net, "--matrix", &stranger],
        "names the node \"z\", which the topology does not have\nhint: it has a, b, c",
    );
    let broken = write("b.csv", "a b 1G\na b\n");
    refused(&[&net, "--matrix", &broken], "b.csv:2:1: a demand has 3 or 4 parts, this line has 2\nhint: ");
    refused(&[&net, "--matrix", "/no/such/file"], "/no/such/file: cannot read the matrix");
    let planes = write("p.json", r#"{"planes": {"2": {"algorithm": {"bronze": "hprr"}, "lsps": 8}}}"#);
    let d = document(&["ebb-6x4", "--plane", "2", "--settings", &planes]);
    assert_eq!(
        (&d["settings"]["lsps"], &d["settings"]["classes"][2]["algorithm"]),
        (&8.into(), &"hprr".into())
    );
    assert_eq!(document(&["ebb-6x4", "--settings", &planes])["settings"]["lsps"], 16);
    let wrong = write("w.json", "{\n\"planes\": {\"2\": {\"algorithms\": 1}}}");
    refused(&["ebb-6x4", "--settings", &wrong], "w.json:2:29: unknown field `algorithms`");
    refused(&["ebb-6x5"], "did you mean `ebb-6x4`?");
    refused(&["ebb-6x4", "--plane", "9"], "has no plane 9\nhint: planes are 1 to 4");
    refused(&["ebb-6x4", "--algorithm", "gold=cspv"], "known: cspf, hprr, mcf, ksp-mcf");
    refused(&["ebb-6x4", "--backup", "rab"], "known: rba, srlg-rba, fir and none");
    refused(&["ebb-6x4", "--share", "gold=50"], "--share adds up to 50 per cent");
    refused(&["ebb-6x4", "--reserved", "0"], "reserved_percent of gold is 0");
    let file = Path::new(&net).join("x");
    refused(&["ebb-6x4", "--plots", file.to_str().unwrap()], "cannot write the plots");
}
