//! A database that is renamed, removed or replaced while it is open: it goes on as a plain one does.

use super::hosts::Hosts;

/// Does the same to a plain and a compressed database, and prints each one's answers and the files left in the folder.
const TRY: &str = "\
import shutil\n\
def done(vfs, how, moment, mode):\n\
\x20   shutil.rmtree('in', ignore_errors=True); os.mkdir('in'); os.chdir('in')\n\
\x20   said = []\n\
\x20   def opened(name): return sqlite3.connect(f'file:{name}?vfs={vfs}', uri=True, timeout=0, isolation_level=None)\n\
\x20   def do(c, *statements):\n\
\x20       for sql in statements:\n\
\x20           try: said.append(c.execute(sql).fetchall())\n\
\x20           except sqlite3.Error as error: said.append(f'{error}')\n\
\x20   def visit(name, *statements):\n\
\x20       c = opened(name); c.execute('PRAGMA synchronous=OFF'); do(c, *statements); return c\n\
\x20   look = 'SELECT count(*), sum(a) FROM t'\n\
\x20   for name, number in ('a.db', 1), ('other.db', 100):\n\
\x20       if moment == 'empty' and number == 1: continue\n\
\x20       visit(name, 'CREATE TABLE t(a)', f'INSERT INTO t VALUES({number})').close()\n\
\x20   c = opened('a.db')\n\
\x20   if moment not in ('opened', 'empty'): c.execute('PRAGMA synchronous=OFF'); c.execute(f'PRAGMA journal_mode={mode}')\n\
\x20   do(c, *{'opened': [], 'empty': [], 'read': [look], 'reading': ['BEGIN', look],\n\
\x20       'writing': ['BEGIN', 'INSERT INTO t VALUES(2)'], 'spilled': ['PRAGMA cache_size=2', 'BEGIN',\n\
\x20       'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) INSERT INTO t SELECT i FROM n']}[moment])\n\
\x20   if how == 'unlink': os.unlink('a.db')\n\
\x20   if how in ('rename', 'swap', 'touch'): os.rename('a.db', 'b.db')\n\
\x20   if how in ('replace', 'swap'): os.rename('other.db', 'a.db')\n\
\x20   if how == 'touch': open('a.db', 'w').close()\n\
\x20   if moment == 'empty': do(c, 'CREATE TABLE t(a)')\n\
\x20   do(c, look, 'INSERT INTO t VALUES(3)', look)\n\
\x20   if c.in_transaction: do(c, 'COMMIT')\n\
\x20   do(c, look, 'DELETE FROM t WHERE a = 1')\n\
\x20   if os.path.exists('b.db') and moment != 'empty':\n\
\x20       # Another connection has it by its new name.\n\
\x20       e = visit('b.db', look, 'INSERT INTO t VALUES(7)'); do(c, look); e.close(); do(c, look)\n\
\x20       visit('b.db', 'INSERT INTO t VALUES(8)', look).close()\n\
\x20   if how in ('replace', 'swap'): visit('a.db', look, 'INSERT INTO t VALUES(9)', look).close()\n\
\x20   c.close()\n\
\x20   left = sorted(os.listdir('.'))\n\
\x20   journals = [it for it in left if 'db-' in it]\n\
\x20   for name in left:\n\
\x20       if name not in journals: visit(name, look, 'PRAGMA integrity_check').close()\n\
\x20   os.chdir('..')\n\
\x20   return said + [[it for it in left if it not in journals]], journals\n";

#[test]
fn a_database_that_is_moved_goes_on_as_a_plain_one() {
    let Some(hosts) = Hosts::find() else { return };
    // Journals that plain SQLite leaves beside the old name are its own; ours leaves nothing.
    let told = hosts.python(&format!(
        "{TRY}\
         tried = 0\n\
         for moment in 'opened', 'read', 'reading', 'writing', 'spilled':\n\
         \x20   for how in 'rename', 'unlink', 'replace', 'swap', 'touch':\n\
         \x20       for mode in ['delete'] if moment == 'opened' else ['delete', 'memory', 'truncate', 'persist']:\n\
         \x20           plain, _ = done('unix', how, moment, {{'memory': mode}}.get(mode, 'delete'))\n\
         \x20           ours, journals = done('breakeven', how, moment, mode)\n\
         \x20           assert ours == plain and journals == [], (moment, how, mode, plain, ours, journals)\n\
         \x20           tried += 1\n\
         print(tried)"
    ));
    assert_eq!(told, "85\n");
}

/// The database would be made by a name that leads to another file, or to none.
#[test]
fn an_empty_file_that_is_moved_becomes_no_database() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(&format!(
        "{TRY}\
         for how in 'rename', 'unlink', 'replace', 'swap', 'touch':\n\
         \x20   ours, journals = done('breakeven', how, 'empty', 'delete')\n\
         \x20   assert ours[2] == 'attempt to write a readonly database' and journals == [], (how, ours, journals)\n\
         \x20   assert 'the file that is open has another name' in loader.execute('SELECT breakeven_why()').fetchone()[0]\n\
         \x20   for name in 'in/a.db', 'in/b.db':\n\
         \x20       if how != 'replace' and (how, name) != ('swap', 'in/a.db'):\n\
         \x20           assert not os.path.exists(name) or os.path.getsize(name) == 0, (how, name)\n\
         print('nothing was made')"
    ));
    assert_eq!(told, "nothing was made\n");
}
